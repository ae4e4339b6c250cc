"""Finds out what a subscription did not find: the service has one word for three things."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.errors import ConsumerNotFoundError, ShardNotFoundError

if TYPE_CHECKING:
    from kinesis_publishers.abc.control_plane import ControlPlane
    from kinesis_publishers.abc.stream_consumer_registrar import StreamConsumerRegistrar
    from kinesis_publishers.model import Shard

__all__ = ["find_missing_resource"]


async def find_missing_resource(
    shard: Shard, consumer_arn: str, registrar: StreamConsumerRegistrar, control_plane: ControlPlane
) -> None:
    """Return if the consumer is there (again), or if nothing is missing; raise otherwise.

    The end of a shard is never concluded from it: a shard that was read to its end says so itself.

    Raises:
        ConsumerNotFoundError: the consumer is gone, and nobody registers it again.
        ShardNotFoundError: the shard is gone: it has left the retention.
        StreamNotFoundError: the stream is gone.
    """
    try:
        if await registrar.renew(shard.stream_arn, consumer_arn) != consumer_arn:
            return
    except ConsumerNotFoundError:
        # Without the stream or the shard there is more to say than that.
        await _check_shard(shard, control_plane)
        raise
    await _check_shard(shard, control_plane)


async def _check_shard(shard: Shard, control_plane: ControlPlane) -> None:
    listed = await control_plane.list_shards(shard.stream_arn)
    if all(one.key != shard.key for one in listed):
        raise ShardNotFoundError(
            f"{shard} is not listed any more: it has left the retention.",
            operation="SubscribeToShard",
            code="ResourceNotFoundException",
        )
