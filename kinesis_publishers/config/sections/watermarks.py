"""Watermarks without Spark: what an event time is, and how far shards may be apart in it."""

from __future__ import annotations

from typing import Final

from kinesis_publishers.config.option import Namespace, Option, Section
from kinesis_publishers.config.parsers import Duration, PluginName, WholeNumber

ARRIVAL: Final = "ARRIVAL"
"""The assigner of those who name none."""


class WatermarkConfig(Section, section="Watermarks"):
    """What the event time of a record is, and how far shards may be apart in it."""

    assigner: Option[str] = Option(
        key="watermark.assigner",
        parser=PluginName(built_in=(ARRIVAL,)),
        default=ARRIVAL,
        namespace=Namespace.OURS,
        guarded=":",
        doc="What the event time of a record is: the time of its arrival (ARRIVAL), or what a "
        "WatermarkAssigner of your own says, as module:Class or entry point.",
    )
    disorder_seconds: Option[float] = Option(
        key="watermark.disordermillis",
        parser=Duration(),
        default=0.0,
        namespace=Namespace.OURS,
        doc="By how much the event time of a record may be before that of an earlier one of its "
        "shard: the watermark stays so far behind.",
    )
    idle_interval_seconds: Option[float] = Option(
        key="shard.idle.interval",
        parser=Duration(can_be_off=True),
        default=-1.0,
        doc="A shard at its tip without records for this long is idle: it delays no watermark.",
    )
    sync_interval_seconds: Option[float] = Option(
        key="watermark.sync.interval",
        parser=Duration(),
        default=30_000.0,
        doc="The period in which workers with leases tell each other their watermarks.",
    )
    lookahead_seconds: Option[float] = Option(
        key="watermark.lookahead.millis",
        parser=Duration(),
        default=0.0,
        doc="How far ahead of the watermark a shard is read on; 0 lets no shard wait.",
    )
    queue_capacity: Option[int] = Option(
        key="watermark.sync.queue.capacity",
        parser=WholeNumber(minimum=1),
        default=100,
        doc="While so many records of a shard wait for the application, it is read no further, "
        "where shards wait for each other (watermark.lookahead.millis).",
    )
