"""A table of the DynamoDB stores: its creation, and the calls about it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, TypeAlias, TypeVar

from attrs import define, field, frozen

from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.aws.clients import ServiceAddress, method_of, open_aio_client
from kinesis_publishers.aws.errors import RefusedError, complete_answer, mapped_errors, text_in
from kinesis_publishers.checkpoints.versions import Attempt, Change, Refusal, VersionedStore
from kinesis_publishers.config import AwsConfig, BillingMode, DynamoDbCheckpointConfig
from kinesis_publishers.errors import AccessDeniedError, CheckpointError, ClosedError
from kinesis_publishers.model import Checkpoint, CheckpointVersion
from kinesis_publishers.retry import call_with_retries
from kinesis_publishers.tasks import TaskScope

_T = TypeVar("_T")
Item: TypeAlias = Mapping[str, Mapping[str, Any]]
"""An item as DynamoDB writes it: ``{"version": {"N": "3"}, ...}``."""
Values: TypeAlias = dict[str, Any]
"""The same with values of Python."""

_CONDITION_FAILED: Final = "ConditionalCheckFailedException"
_NOT_FOUND: Final = "ResourceNotFoundException"
_IN_USE: Final = "ResourceInUseException"
# Half a second for the writes of a thousand shards, without a burst that is throttled.
MAX_IN_FLIGHT: Final = 16

_DESCRIBE: Final = "DescribeTable"
# The caller handles these; everything else is mapped here.
_ANSWERS: Final = frozenset({_CONDITION_FAILED, _NOT_FOUND, _IN_USE})


@frozen(kw_only=True)
class TableForm:
    """What the keys of a table are; their values are texts.

    Attributes:
        keys: ``HASH`` or ``RANGE`` by attribute, in this order.
        indexes: the same for each index that a new table gets, by its name.
    """

    keys: Mapping[str, str]
    indexes: Mapping[str, Mapping[str, str]] = field(factory=dict)

    def __str__(self) -> str:
        """Say how to create it."""
        kinds = {"HASH": "partition key", "RANGE": "sort key"}
        keys = [f"{name} ({kinds[kind]}, text)" for name, kind in self.keys.items()]
        return f"the key{'s' * (len(keys) > 1)} {' and '.join(keys)}"


@define(eq=False)
class TableClient:
    """Calls DynamoDB about one table; repeats and reports failed calls as the context says."""

    aws: AwsConfig
    config: DynamoDbCheckpointConfig
    context: CheckpointStoreContext
    form: TableForm
    _stack: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    _client: Any = field(default=None, init=False)
    _has_answered: bool = field(default=False, init=False)

    def __str__(self) -> str:
        return f"the DynamoDB table {self.config.table}"

    async def open(self) -> None:
        """Make the client; wait until the table is ready, which is created if it is missing."""
        address = ServiceAddress(
            service="dynamodb", endpoint_url=self.config.endpoint_url, max_connections=MAX_IN_FLIGHT
        )
        with mapped_errors("CreateClient", str(self), service="dynamodb"):
            self._client = await self._stack.enter_async_context(open_aio_client(self.aws, address))
        if self.config.create_table:
            await _provide_table(self)

    async def close(self) -> None:
        """Close every connection."""
        self._client = None
        await self._stack.aclose()

    async def call(
        self, operation: str, read: Callable[[dict[str, Any]], _T], **request: Any
    ) -> _T:
        """Make a call, with retries; return what ``read`` takes from the answer.

        ``read`` fails if that is not AWS's; ``request`` has no name of a table.

        Raises:
            RefusedError: a condition does not hold, the table is being changed, or a description
                of it was requested and it does not exist.
            CheckpointError: the table does not exist.
            ServiceError: the service refuses for another reason.
            RetriesExhaustedError: the policy allows no more attempts.
        """

        async def attempt() -> _T:
            if self._client is None:
                raise ClosedError(f"The store of checkpoints in {self} is not open.")
            with mapped_errors(
                operation, str(self), service="dynamodb", client=self._client, unless=_ANSWERS
            ):
                call = method_of(self._client, operation)
                answer = await call(TableName=self.config.table, **request)
            with complete_answer(operation, str(self)):
                return read(answer)

        context = self.context
        try:
            answer = await call_with_retries(
                attempt,
                policy=context.retry,
                clock=context.clock,
                events=context.events,
                is_start=not self._has_answered,
            )
        except RefusedError as error:
            if error.code == _NOT_FOUND and operation != _DESCRIBE:
                raise self._missing_table() from error
            raise
        self._has_answered = True
        return answer

    async def read_items(self, operation: str, **request: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield the items of all pages of a query or a scan."""
        while True:
            items, last_key = await self.call(
                operation,
                # Without the member Items it is no answer: an empty table would mean to start over.
                lambda answer: (answer["Items"], answer.get("LastEvaluatedKey")),
                ConsistentRead=True,
                **request,
            )
            for item in items:
                yield item
            if not last_key:
                return
            request["ExclusiveStartKey"] = last_key

    async def write_item(self, operation: str, **request: Any) -> Values | None:
        """Make a conditional write; return ``None``, or the item that it did not replace."""
        try:
            await self.call(
                operation, dict, **request, ReturnValuesOnConditionCheckFailure="ALL_OLD"
            )
        except RefusedError as error:
            if error.code != _CONDITION_FAILED:
                raise
            return values_of(error.answer.get("Item") or {})
        return None

    def _missing_table(self) -> CheckpointError:
        return CheckpointError(
            f"{self} does not exist in {self.aws.region}. The first reader creates it with "
            f"kinesis.checkpoint.dynamodb.createtable = true; or create it with {self.form}. If it "
            "was removed while it was in use, its checkpoints are gone."
        )


class DynamoDbStore(VersionedStore):
    """What the two forms of a table have in common: each change is a conditional write.

    Of a batch, a limited number is under way at the same time.
    """

    def __init__(
        self,
        context: CheckpointStoreContext,
        aws: AwsConfig,
        config: DynamoDbCheckpointConfig,
        form: TableForm,
    ) -> None:
        super().__init__(context)
        self._client = TableClient(aws, config, context, form)

    def __str__(self) -> str:
        return str(self._client)

    async def open(self) -> None:
        await self._client.open()

    async def close(self) -> None:
        await self._client.close()

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        refusals: list[Refusal] = []
        pending = iter(changes)

        async def work() -> None:
            for attempt, checkpoint in pending:
                operation, request = self._request(attempt, checkpoint)
                found = await self._client.write_item(operation, **request)
                if found is not None:
                    stored, written_at = self._written(found) if found else (None, None)
                    refusals.append(Refusal(attempt=attempt, stored=stored, written_at=written_at))

        # A refusal does not keep the others from being made; another failure ends it early.
        async with TaskScope() as scope:
            for number in range(min(MAX_IN_FLIGHT, len(changes))):
                scope.spawn(work(), name=f"write checkpoints {number}")
        return refusals

    @abstractmethod
    def _request(
        self, attempt: Attempt, checkpoint: Checkpoint | None
    ) -> tuple[str, dict[str, Any]]:
        """Return the operation that makes a change, and its parameters."""

    @abstractmethod
    def _written(self, found: Values) -> tuple[CheckpointVersion, str | None]:
        """Return the version of an item, and when that was written, if it says so."""


def values_of(item: Item) -> Values:
    """Return an item with values of Python; other than texts, integers and sets of texts stay."""
    return {name: _value(one) for name, one in item.items()}


def _value(value: Mapping[str, Any]) -> object:
    if "N" in value:
        text: str = value["N"]
        return int(text) if text.removeprefix("-").isdecimal() else text
    return tuple(sorted(value["SS"])) if "SS" in value else value.get("S", value)


def item_of(values: Values) -> dict[str, dict[str, Any]]:
    """Return the item of which :func:`values_of` makes ``values``."""
    return {name: _attribute(one) for name, one in values.items()}


def _attribute(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    kind = {"str": "S", "tuple": "SS"}.get(type(value).__name__)
    return {kind: value} if kind else {"N": str(value)}


def update_of(key: Values, changes: Values) -> dict[str, Any]:
    """Return the parameters of an UpdateItem; ``None`` removes an attribute."""
    sets = {name: value for name, value in changes.items() if value is not None}
    removes = [name for name, value in changes.items() if value is None]
    return {
        "Key": item_of(key),
        "UpdateExpression": f"SET {', '.join(f'{name} = :{name}' for name in sets)}"
        + (f" REMOVE {', '.join(removes)}" if removes else ""),
        "ExpressionAttributeValues": item_of({f":{name}": one for name, one in sets.items()}),
    }


def condition_of(
    attempt: Attempt, expected: Values, repeated: str, *, also: str = ""
) -> dict[str, Any]:
    """Return ``attempt.replaces`` as parameters of a write.

    Args:
        attempt: which write it is.
        expected: attributes of the expected item, ``None`` for those that it does not have.
        repeated: the condition of an own write with one of the numbers :first to :last.
        also: another condition for the expected item.
    """
    own = attempt.version
    values = {f":known_{name}": one for name, one in expected.items() if one is not None}
    values |= {":own": own.writer, ":first": attempt.first_unanswered, ":last": own.number}
    known = " AND ".join(
        f"attribute_not_exists({name})" if one is None else f"{name} = :known_{name}"
        for name, one in expected.items()
    )
    return {
        "ConditionExpression": f"({known}{also}) OR ({repeated})",
        "ExpressionAttributeValues": item_of(values),
    }


# Creating a table takes about ten seconds.
_POLL_SECONDS: Final = 1.0
_ACTIVE_TIMEOUT_SECONDS: Final = 180.0


async def _provide_table(client: TableClient) -> None:
    """Wait until the table is ready; create it if it is missing.

    Raises:
        CheckpointError: it has other keys, or does not become ready.
        AccessDeniedError: the credentials do not allow it; says what to do.
    """
    try:
        async with client.context.clock.timeout(_ACTIVE_TIMEOUT_SECONDS) as limit:
            while not await _is_active(client):
                await client.context.clock.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise CheckpointError(
            f"{client} has not become ACTIVE in {_ACTIVE_TIMEOUT_SECONDS:g} seconds: look at it in "
            "DynamoDB, and start again."
        ) from error


async def _is_active(client: TableClient) -> bool:
    try:
        return await client.call(_DESCRIBE, lambda answer: _is_usable(client, answer["Table"]))
    except RefusedError as error:
        if error.code != _NOT_FOUND:
            raise
    except AccessDeniedError as error:
        error.add_note(
            "With kinesis.checkpoint.dynamodb.createtable = false the table is neither described "
            "nor created."
        )
        raise
    try:
        return await client.call(
            "CreateTable",
            lambda answer: _is_usable(client, answer["TableDescription"]),
            **_new_table(client.form, client.config),
        )
    except RefusedError as error:
        # Another process has just created it.
        if error.code != _IN_USE:
            raise
        return False


def _is_usable(client: TableClient, table: dict[str, Any]) -> bool:
    status = text_in(table, "TableStatus")
    keys = {text_in(key, "AttributeName"): text_in(key, "KeyType") for key in table["KeySchema"]}
    if keys != client.form.keys:
        raise CheckpointError(
            f"{client} does not hold these checkpoints: its keys are {', '.join(sorted(keys))}, "
            f"not {' and '.join(client.form.keys)}. Set kinesis.checkpoint.dynamodb.table to "
            "another."
        )
    # An update allows reads and writes; while DELETING, wait and create.
    return status in {"ACTIVE", "UPDATING"}


def _new_table(form: TableForm, config: DynamoDbCheckpointConfig) -> dict[str, Any]:
    units = {"ReadCapacityUnits": config.read_capacity, "WriteCapacityUnits": config.write_capacity}
    is_provisioned = config.billing_mode is BillingMode.PROVISIONED
    capacity = {"ProvisionedThroughput": units} if is_provisioned else {}
    indexes = [
        {
            "IndexName": name,
            "KeySchema": _schema(keys),
            "Projection": {"ProjectionType": "KEYS_ONLY"},
            **capacity,
        }
        for name, keys in form.indexes.items()
    ]
    tags = [{"Key": key, "Value": value} for key, value in config.tags]
    table = {
        "BillingMode": config.billing_mode.value,
        "KeySchema": _schema(form.keys),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": "S"}
            for name in sorted({*form.keys}.union(*form.indexes.values()))
        ],
        **capacity,
    }
    # Neither may be there and empty.
    return table | {
        name: value
        for name, value in (("GlobalSecondaryIndexes", indexes), ("Tags", tags))
        if value
    }


def _schema(keys: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()]
