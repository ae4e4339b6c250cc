"""Calls to DynamoDB: a client like the data plane's, one attempt each, errors of our tree."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

from attrs import define, field

from kinesis_publishers.aws.clients import ServiceAddress, open_aio_client
from kinesis_publishers.aws.errors import complete_answer, mapped_errors
from kinesis_publishers.errors import ClosedError
from kinesis_publishers.retry import call_with_retries

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.abc import CheckpointStoreContext
    from kinesis_publishers.config import AwsConfig, DynamoDbCheckpointConfig

__all__ = ["CONDITION_FAILED", "MAX_IN_FLIGHT", "NOT_FOUND", "TableClient"]

_T = TypeVar("_T")

CONDITION_FAILED: Final = "ConditionalCheckFailedException"
NOT_FOUND: Final = "ResourceNotFoundException"
# Half a second for the writes of a thousand shards, without a burst that is throttled.
MAX_IN_FLIGHT: Final = 16

# What the caller decides about; everything else is mapped here.
_ANSWERS: Final = frozenset({CONDITION_FAILED, NOT_FOUND, "ResourceInUseException"})


@define(eq=False)
class TableClient:
    """Calls DynamoDB about one table.

    Args:
        aws: region, credentials and CA certificates.
        config: the table and the endpoint.
        context: how a call that failed is repeated, and where that is reported.
    """

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
            service="dynamodb",
            endpoint_url=self.config.endpoint_url,
            max_connections=MAX_IN_FLIGHT,
        )
        with mapped_errors("CreateClient", str(self), service="dynamodb"):
            self._client = await self._stack.enter_async_context(open_aio_client(self.aws, address))

    async def close(self) -> None:
        """Close every connection."""
        self._client = None
        await self._stack.aclose()

    async def call(
        self, method: str, operation: str, read: Callable[[dict[str, Any]], _T], **request: Any
    ) -> _T:
        """Make a call, again and again while the service says later; return what is read from it.

        Args:
            method: the name of the client's method.
            operation: the API operation, as ``PutItem``.
            read: takes what is wanted out of the answer, for want of which it is not AWS's.
            request: its parameters, without the table's name.

        Raises:
            RefusedError: a condition does not hold, the table is not there, or it is being changed.
            ServiceError: the service refuses for another reason.
            RetriesExhaustedError: the policy allows no more attempts.
        """

        async def attempt() -> _T:
            if self._client is None:
                raise ClosedError(f"The store of checkpoints in {self} is not open.")
            with mapped_errors(
                operation, str(self), service="dynamodb", client=self._client, unless=_ANSWERS
            ):
                answer = await getattr(self._client, method)(TableName=self.config.table, **request)
            with complete_answer(operation, str(self)):
                return read(answer)

        context = self.context
        answer = await call_with_retries(
            attempt,
            policy=context.retry,
            clock=context.clock,
            events=context.events,
            is_start=not self._has_answered,
        )
        self._has_answered = True
        return answer
