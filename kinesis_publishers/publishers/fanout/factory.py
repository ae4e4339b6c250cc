"""Creates the publishers that subscribe to shards, a few per second."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Sequence
from typing import Self

from attrs import define, field

from kinesis_publishers.abc import PublisherContext, RecordPublisherFactory, StreamConsumerRegistrar
from kinesis_publishers.config import (
    AwsConfig,
    FanOutConfig,
    Properties,
    RegistrationConfig,
    SubscriptionHttpConfig,
)
from kinesis_publishers.errors import ConfigError
from kinesis_publishers.model import Shard, StartingPosition
from kinesis_publishers.model.sources import EFO
from kinesis_publishers.publishers.fanout.publisher import FanOutRecordPublisher
from kinesis_publishers.publishers.fanout.recovery import SubscriptionRecovery
from kinesis_publishers.registration import create_registrar

# Each start is a TLS handshake. The shards of one second may start at once.
_STARTS_PER_SECOND = 10
# For subscriptions that are about to connect, name lookups and all other parts.
_SPARE_DESCRIPTORS = 64
# Other parts may need many descriptors for a moment.
_LOOKS = 5


# With slots, attrs would make the class again, without ``known``.
@define(eq=False, slots=False)
class FanOutRecordPublisherFactory(RecordPublisherFactory, known=EFO):
    """Selected by ``stream.recordpublisher = EFO``."""

    _config: FanOutConfig
    _registrar: StreamConsumerRegistrar
    _context: PublisherContext
    _warned_at: dict[str, float] = field(factory=dict, init=False)
    _next_start: float = field(default=-math.inf, init=False)

    @classmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> Self:
        # Imported here: naming the class must not load an SDK.
        from kinesis_publishers.aws.data_plane import check_carrier

        config = FanOutConfig.from_properties(properties)
        endpoint = AwsConfig.from_properties(properties).endpoint_url
        # Check before a consumer is registered.
        http = SubscriptionHttpConfig.from_properties(properties)
        check_carrier(http, endpoint, subscribes=True)
        registrar = create_registrar(RegistrationConfig.from_properties(properties), context)
        return cls(config, registrar, context)

    async def prepare(self, stream_arns: Sequence[str]) -> None:
        await self._registrar.prepare(stream_arns)

    async def create(
        self, starting_position: StartingPosition, shard: Shard
    ) -> FanOutRecordPublisher:
        await self._wait_for_start()
        await self._check_descriptors(shard)
        config, context = self._config, self._context
        recovery = SubscriptionRecovery(shard, config, self._registrar, context, self._warned_at)
        return FanOutRecordPublisher(shard, starting_position, config, context, recovery)

    async def _wait_for_start(self) -> None:
        clock, step = self._context.clock, 1.0 / _STARTS_PER_SECOND
        start = max(self._next_start, clock.monotonic() - 1.0 + step)
        self._next_start = start + step
        if (delay := start - clock.monotonic()) > 0:
            await clock.sleep(delay)

    async def _check_descriptors(self, shard: Shard) -> None:
        """Raise the limit of file descriptors before they run out."""
        for _ in range(_LOOKS):
            used, most = _used_and_most_descriptors()
            if used + _SPARE_DESCRIPTORS < most:
                return
            await self._context.clock.sleep(1.0)
        listed = await self._context.control_plane.list_shards(shard.stream_arn)
        shards = sum(not one.is_closed for one in listed)
        raise ConfigError(
            f"{shard.stream_arn} has {shards} open shards, each of which needs a connection. This "
            f"process has {used} of at most {most} files open: raise ulimit -n, with its hard "
            f"limit, to {used + shards + _SPARE_DESCRIPTORS} or less, "
            "divide the shards among workers, or read with kinesis.stream.recordpublisher=POLLING."
        )

    async def close(self) -> None:
        await self._registrar.close()


def _used_and_most_descriptors() -> tuple[int, float]:
    """Return the number of open files and the limit, which is raised if it is nearly reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = os.open(os.devnull, os.O_RDONLY)  # the lowest number that is free
        os.close(used)
    except OSError:
        used = soft
    if soft == resource.RLIM_INFINITY:
        return used, math.inf
    if used + _SPARE_DESCRIPTORS >= soft:
        soft = 2 * soft if hard == resource.RLIM_INFINITY else min(2 * soft, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return used, soft
