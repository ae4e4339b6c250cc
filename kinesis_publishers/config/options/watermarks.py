"""Options of idle shards and of event-time alignment between shards."""

from __future__ import annotations

from typing import Final

from kinesis_publishers.config.option import Option
from kinesis_publishers.config.parsers import Duration, WholeNumber

_SECTION = "Watermarks"

IDLE_INTERVAL: Final = Option(
    key="shard.idle.interval",
    parser=Duration(can_be_off=True),
    default=-1.0,
    section=_SECTION,
    implemented=False,
    doc="A shard without records for this long is idle and holds no watermark back.",
)
SYNC_INTERVAL: Final = Option(
    key="watermark.sync.interval",
    parser=Duration(),
    default=30_000.0,
    section=_SECTION,
    implemented=False,
    doc="The period in which shards exchange their watermarks.",
)
LOOKAHEAD: Final = Option(
    key="watermark.lookahead.millis",
    parser=Duration(),
    default=0.0,
    section=_SECTION,
    implemented=False,
    doc="How far a shard may run ahead of the common watermark.",
)
SYNC_QUEUE_CAPACITY: Final = Option(
    key="watermark.sync.queue.capacity",
    parser=WholeNumber(minimum=1),
    default=100,
    section=_SECTION,
    implemented=False,
    doc="How many records of a shard wait for the common watermark.",
)

OPTIONS: Final = (IDLE_INTERVAL, SYNC_INTERVAL, LOOKAHEAD, SYNC_QUEUE_CAPACITY)
