"""The table of the DynamoDB store: its keys, its creation, and the calls about it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final, TypeVar

from attrs import define, field

from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.aws.clients import ServiceAddress, method_of, open_aio_client
from kinesis_publishers.aws.errors import RefusedError, complete_answer, mapped_errors, text_in
from kinesis_publishers.config import AwsConfig, DynamoDbCheckpointConfig
from kinesis_publishers.errors import AccessDeniedError, CheckpointError, ClosedError
from kinesis_publishers.retry import call_with_retries

_T = TypeVar("_T")

CONDITION_FAILED: Final = "ConditionalCheckFailedException"
_NOT_FOUND: Final = "ResourceNotFoundException"
# Half a second for the writes of a thousand shards, without a burst that is throttled.
MAX_IN_FLIGHT: Final = 16

_DESCRIBE: Final = "DescribeTable"
# The caller handles these; everything else is mapped here.
_ANSWERS: Final = frozenset({CONDITION_FAILED, _NOT_FOUND, "ResourceInUseException"})


@define(eq=False)
class TableClient:
    """Calls DynamoDB about one table; repeats and reports failed calls as the context says."""

    aws: AwsConfig
    config: DynamoDbCheckpointConfig
    context: CheckpointStoreContext
    _stack: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    _client: Any = field(default=None, init=False)
    _has_answered: bool = field(default=False, init=False)

    def __str__(self) -> str:
        return f"the DynamoDB table {self.config.table}"

    async def open(self) -> None:
        """Make the client; no call is made."""
        address = ServiceAddress(
            service="dynamodb", endpoint_url=self.config.endpoint_url, max_connections=MAX_IN_FLIGHT
        )
        with mapped_errors("CreateClient", str(self), service="dynamodb"):
            self._client = await self._stack.enter_async_context(open_aio_client(self.aws, address))

    async def close(self) -> None:
        """Close every connection."""
        self._client = None
        await self._stack.aclose()

    async def call(
        self, operation: str, read: Callable[[dict[str, Any]], _T], **request: Any
    ) -> _T:
        """Make a call, with retries; return what ``read`` takes from the answer.

        Args:
            operation: the API operation, as ``PutItem``.
            read: extracts the result from the answer; fails if that is not AWS's.
            request: its parameters, without the table's name.

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

    def _missing_table(self) -> CheckpointError:
        return CheckpointError(
            f"{self} does not exist in {self.aws.region}: create it with the keys application "
            f"(partition key, text) and shard (sort key, text), or let it be created with "
            "kinesis.checkpoint.dynamodb.createtable = true. If it was removed while it was in "
            "use, its checkpoints are gone."
        )


_KEYS: Final = {"application": "HASH", "shard": "RANGE"}

# Creating a table takes about ten seconds.
_POLL_SECONDS: Final = 1.0
_ACTIVE_TIMEOUT_SECONDS: Final = 180.0


async def provide_table(client: TableClient) -> None:
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
        return await _create(client)
    except AccessDeniedError as error:
        error.add_note(
            "With kinesis.checkpoint.dynamodb.createtable = false the table is neither described "
            "nor created."
        )
        raise


def _is_usable(client: TableClient, table: dict[str, Any]) -> bool:
    status = text_in(table, "TableStatus")
    keys = {text_in(key, "AttributeName"): text_in(key, "KeyType") for key in table["KeySchema"]}
    if keys != _KEYS:
        raise CheckpointError(
            f"{client} does not hold checkpoints: its keys are {', '.join(sorted(keys))}, not "
            f"application and shard. Set kinesis.checkpoint.dynamodb.table to another."
        )
    # An update allows reads and writes; while DELETING, wait and create.
    return status in {"ACTIVE", "UPDATING"}


async def _create(client: TableClient) -> bool:
    """Create the table; return whether it is ready."""
    try:
        return await client.call(
            "CreateTable",
            lambda answer: _is_usable(client, answer["TableDescription"]),
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in _KEYS.items()],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in _KEYS],
        )
    except RefusedError as error:
        # Another process has just created it.
        if error.code != "ResourceInUseException":
            raise
        return False
