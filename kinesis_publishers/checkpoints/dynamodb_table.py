"""A store in a table of DynamoDB: its creation, its calls, and items as values of Python."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

from attrs import define, field

from kinesis_publishers.abc import OpenTransaction
from kinesis_publishers.aws.clients import method_of, open_aio_client
from kinesis_publishers.aws.errors import RefusedError, complete_answer, mapped_errors, text_in
from kinesis_publishers.checkpoints.versions import Attempt, Change, Refusal, Storage, StoreCalls
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import AwsConfig, BillingMode, DynamoDbCheckpointConfig
from kinesis_publishers.errors import AccessDeniedError, CheckpointError
from kinesis_publishers.model import Checkpoint, CheckpointVersion
from kinesis_publishers.tasks import TaskScope

_T = TypeVar("_T")
Item: TypeAlias = Mapping[str, Mapping[str, Any]]
"""An item as DynamoDB writes it: ``{"version": {"N": "3"}, ...}``."""
Values: TypeAlias = dict[str, Any]
"""The same with values of Python."""
ItemRequest: TypeAlias = tuple[str, dict[str, Any]]
"""The operation of a change, and its parameters."""
RequestOf: TypeAlias = "Callable[[Attempt, Checkpoint | None], ItemRequest]"
VersionOf: TypeAlias = "Callable[[Values], tuple[CheckpointVersion | None, str | None]]"

_CONDITION_FAILED: Final = "ConditionalCheckFailedException"
_NOT_FOUND: Final = "ResourceNotFoundException"
_IN_USE: Final = "ResourceInUseException"
_POLL_SECONDS: Final = 1.0
# Creating a table takes about ten seconds.
_ACTIVE_TIMEOUT_SECONDS: Final = 180.0
# Half a second for the writes of a thousand shards, without a burst that is throttled.
MAX_IN_FLIGHT: Final = 16


@define(eq=False)
class DynamoDbTable(Storage):
    """A table in which each change is a conditional write.

    Attributes:
        keys: ``HASH`` or ``RANGE`` by attribute, in this order; the values are texts.
        indexes: the same for each index that a new table gets, by its name.
    """

    aws: AwsConfig
    config: DynamoDbCheckpointConfig
    _clock: Clock
    keys: Mapping[str, str]
    indexes: Mapping[str, Mapping[str, str]] = field(factory=dict)
    _calls: StoreCalls = field(init=False)
    _stack: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    _client: Any = field(default=None, init=False)

    def __str__(self) -> str:
        return f"the DynamoDB table {self.config.table}"

    async def open(self, calls: StoreCalls) -> None:
        self._calls = calls
        url, most = self.config.endpoint_url, MAX_IN_FLIGHT
        with mapped_errors("CreateClient", str(self), service="dynamodb"):
            client = open_aio_client(self.aws, "dynamodb", url, max_pool_connections=most)
            self._client = await self._stack.enter_async_context(client)
        if self.config.create_table:
            await self._provide_table()

    async def close(self) -> None:
        await self._stack.aclose()

    async def call(
        self,
        operation: str,
        read: Callable[[dict[str, Any]], _T],
        *,
        refusal: str = "",
        **request: Any,
    ) -> _T:
        """Make a call about the table, with retries; return what ``read`` takes from the answer.

        Raises:
            RefusedError: the service refuses with the code ``refusal``.
            CheckpointError: the table does not exist.
        """
        where = str(self)
        # A server that is not AWS's may refuse without a code.
        unless = {refusal or _NOT_FOUND, _NOT_FOUND}

        async def attempt() -> _T:
            with mapped_errors(
                operation, where, service="dynamodb", client=self._client, unless=unless
            ):
                call = method_of(self._client, operation)
                answer = await call(TableName=self.config.table, **request)
            with complete_answer(operation, where):
                return read(answer)

        try:
            return await self._calls.make(attempt)
        except RefusedError as error:
            if error.code == refusal:
                raise
            kinds = {"HASH": "partition key", "RANGE": "sort key"}
            keys = [f"{name} ({kinds[kind]}, text)" for name, kind in self.keys.items()]
            raise CheckpointError(
                f"{self} does not exist in {self.aws.region}: check both names. The first reader "
                "of an application creates the application's table with "
                "kinesis.checkpoint.dynamodb.createtable = true; or create that with "
                f"{' and '.join(keys)}. If it was removed while it was in use, its checkpoints are "
                "gone."
            ) from error

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

    async def _provide_table(self) -> None:
        try:
            async with self._clock.timeout(_ACTIVE_TIMEOUT_SECONDS) as limit:
                while not await self._is_active():
                    await self._clock.sleep(_POLL_SECONDS)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise CheckpointError(
                f"{self} has not become ACTIVE in {_ACTIVE_TIMEOUT_SECONDS:g} seconds: look at it "
                "in DynamoDB, and start again."
            ) from error

    async def _is_active(self) -> bool:
        try:
            with suppress(RefusedError):
                return await self.call(
                    "DescribeTable",
                    lambda answer: self._is_usable(answer["Table"]),
                    refusal=_NOT_FOUND,
                )
        except AccessDeniedError as error:
            error.add_note(
                "With kinesis.checkpoint.dynamodb.createtable = false the table is neither "
                "described nor created."
            )
            raise
        # Unless another process has just created it.
        with suppress(RefusedError):
            return await self.call(
                "CreateTable",
                lambda answer: self._is_usable(answer["TableDescription"]),
                refusal=_IN_USE,
                **self._new_table(),
            )
        return False

    def _is_usable(self, table: dict[str, Any]) -> bool:
        schema, status = table["KeySchema"], text_in(table, "TableStatus")
        keys = {text_in(one, "AttributeName"): text_in(one, "KeyType") for one in schema}
        if keys != self.keys:
            raise CheckpointError(
                f"{self} does not hold these checkpoints: its keys are {', '.join(sorted(keys))}, "
                f"not {' and '.join(self.keys)}. Set kinesis.checkpoint.dynamodb.table to "
                "another."
            )
        # An update allows reads and writes; while DELETING, wait and create.
        return status in {"ACTIVE", "UPDATING"}

    def _new_table(self) -> dict[str, Any]:
        config, capacity = self.config, {}
        if config.billing_mode is BillingMode.PROVISIONED:
            capacity["ProvisionedThroughput"] = {
                "ReadCapacityUnits": config.read_capacity,
                "WriteCapacityUnits": config.write_capacity,
            }
        projection = {"Projection": {"ProjectionType": "KEYS_ONLY"}, **capacity}
        indexes = [
            {"IndexName": name, "KeySchema": _schema(keys), **projection}
            for name, keys in self.indexes.items()
        ]
        tags = [{"Key": key, "Value": value} for key, value in config.tags]
        # Neither may be there and empty.
        optional = {"GlobalSecondaryIndexes": indexes, "Tags": tags}
        return {
            "BillingMode": config.billing_mode.value,
            "KeySchema": _schema(self.keys),
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": "S"}
                for name in sorted({*self.keys}.union(*self.indexes.values()))
            ],
            **capacity,
            **{name: value for name, value in optional.items() if value},
        }

    async def apply(
        self, changes: Sequence[Change], request_of: RequestOf, version_of: VersionOf
    ) -> list[Refusal]:
        """Make changes: each by the operation and parameters that ``request_of`` returns.

        ``version_of`` returns the version of an item, and when it was written.
        """
        refusals: list[Refusal] = []
        pending = iter(changes)

        async def work() -> None:
            for attempt, checkpoint in pending:
                operation, request = request_of(attempt, checkpoint)
                request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
                try:
                    await self.call(operation, dict, refusal=_CONDITION_FAILED, **request)
                except RefusedError as error:
                    stored, written_at = version_of(values_of(error.answer.get("Item") or {}))
                    refusals.append(Refusal(attempt=attempt, stored=stored, written_at=written_at))

        # A refusal does not keep the others from being made; another failure ends it early.
        async with TaskScope() as scope:
            for number in range(min(MAX_IN_FLIGHT, len(changes))):
                scope.spawn(work(), name=f"write checkpoints {number}")
        return refusals

    def check_transaction(self, transaction: OpenTransaction) -> None:
        """Check that a transaction is the call of a client, and takes more items.

        Raises:
            TypeError: it is not.
        """
        client, request = transaction.handle, transaction.request
        has_items = isinstance(request.get("TransactItems"), list | tuple)
        if not has_items or not hasattr(client, "transact_write_items"):
            raise TypeError(
                f"The checkpoint goes into a TransactWriteItems with {self}: give a client for "
                "DynamoDB, of boto3 or aiobotocore, and TransactItems=[...], not "
                f"{client!r:.200} with {', '.join(request) or 'nothing'}."
            )
        if "ClientRequestToken" in request:
            raise TypeError("leave ClientRequestToken out: a refused call is repeated with others")

    def joined(
        self, transaction: OpenTransaction, items: Sequence[ItemRequest]
    ) -> Callable[[], bool | Awaitable[bool]]:
        """Return what makes the call with ``items`` in addition, as ``JoinedWrite.execute``."""
        own = [
            {operation.removesuffix("Item"): {"TableName": self.config.table, **parameters}}
            for operation, parameters in items
        ]
        theirs = transaction.request
        both = {**theirs, "TransactItems": [*theirs["TransactItems"], *own]}

        async def write_async(answer: Awaitable[object]) -> bool:
            with _refusing(len(own)) as made:
                await answer
                made.append(True)
            return bool(made)

        def run() -> bool | Awaitable[bool]:
            with _refusing(len(own)) as made:
                answer = transaction.handle.transact_write_items(**both)
                if inspect.isawaitable(answer):
                    return write_async(answer)
                made.append(True)
            return bool(made)

        return run


@contextmanager
def _refusing(own: int) -> Iterator[list[bool]]:
    """Suppress the error of a transaction in which the ``own`` last items were refused."""
    try:
        yield []
    except Exception as error:  # the class is of the client, which is the application's
        response = getattr(error, "response", {})
        reasons = [one.get("Code") for one in response.get("CancellationReasons", ())]
        others = {*reasons[:-own]} - {"None", None}
        if others or not _REFUSED & {*reasons[-own:]}:
            raise


# Of items of a transaction: another writer was first, or is at work.
_REFUSED: Final = {"ConditionalCheckFailed", "TransactionConflict"}


def values_of(item: Item) -> Values:
    """Return an item with values of Python; only texts, integers and sets of texts change."""
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


def _schema(keys: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()]
