"""Where the ARN of a stream consumer comes from: one class per registration strategy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["StreamConsumerRegistrar"]


class StreamConsumerRegistrar(ABC):
    """Provides the consumer with which shards are subscribed to (``stream.efo.registration``).

    One registrar serves all shards of a fetcher, at once.
    """

    @abstractmethod
    async def prepare(self, stream_arns: Sequence[str]) -> None:
        """Make sure, before any shard is read, that each stream has its consumer.

        If one of them cannot get it, those that were registered by this call are removed again.

        Raises:
            AccessDeniedError: the credentials do not allow it; the missing action is named.
            LimitExceededError: a stream has as many consumers as it may have.
            RetriesExhaustedError: the service failed too often, or took too long.
        """

    @abstractmethod
    async def consumer_arn(self, stream_arn: str) -> str:
        """Return the ARN of the ACTIVE consumer of a stream; waits for it if need be."""

    @abstractmethod
    async def renew(self, stream_arn: str, consumer_arn: str) -> str:
        """Return the consumer's ARN after a subscription with ``consumer_arn`` was not found.

        Returns:
            The same ARN if that consumer is there: something else was not found, then. Another one
            if it has been registered again, by whomever.

        Raises:
            ConsumerNotFoundError: it is gone, and this strategy does not register it.
        """

    @abstractmethod
    async def close(self) -> None:
        """Leave the consumers: the last one to leave removes what this application created.

        Never raises for a consumer that could not be removed; it logs how to do that by hand.
        """
