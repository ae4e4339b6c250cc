"""Options of shard discovery."""

from __future__ import annotations

from typing import Final

from kinesis_publishers.config.option import Option
from kinesis_publishers.config.parsers import Duration

DISCOVERY_INTERVAL: Final = Option(
    key="shard.discovery.intervalmillis",
    parser=Duration(),
    default=10_000.0,
    section="Discovery",
    doc="The period in which ListShards looks for new shards.",
)

OPTIONS: Final = (DISCOVERY_INTERVAL,)
