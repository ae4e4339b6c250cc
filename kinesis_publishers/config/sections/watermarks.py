"""Watermarks without Spark: where event times come from, and how far apart shards may be."""

from __future__ import annotations

from typing import Final

from kinesis_publishers.config.option import Namespace, Option, Section
from kinesis_publishers.config.parsers import Duration, PluginName, WholeNumber

ARRIVAL: Final = "ARRIVAL"
"""The default assigner."""


class WatermarkConfig(Section, section="Watermarks"):
    """Where event times come from, and how far apart shards may be."""

    assigner: Option[str] = Option(
        key="watermark.assigner",
        parser=PluginName(
            built_in={ARRIVAL: "kinesis_publishers.engine.watermarks:ArrivalTime"},
            group="kinesis_publishers.watermark_assigners",
        ),
        default=ARRIVAL,
        namespace=Namespace.OURS,
        guarded=":",
        doc="Where the event time of a record comes from: its arrival (ARRIVAL), or a "
        "WatermarkAssigner of your own, given as module:Class or entry point.",
    )
    disorder_seconds: Option[float] = Option(
        key="watermark.disordermillis",
        parser=Duration(),
        default=0.0,
        namespace=Namespace.OURS,
        doc="How far out of order event times may be within a shard: the distance of the "
        "watermark from the latest event time.",
    )
    idle_interval_seconds: Option[float] = Option(
        key="shard.idle.interval",
        parser=Duration(can_be_off=True),
        default=-1.0,
        doc="After this long without a record, a shard at its tip is idle and no longer holds back "
        "the watermark.",
    )
    sync_interval_seconds: Option[float] = Option(
        key="watermark.sync.interval",
        parser=Duration(),
        default=30_000.0,
        doc="How often workers with leases publish the watermarks of their shards. A shard that "
        "receives records publishes its watermark sooner, with each checkpoint.",
    )
    lookahead_seconds: Option[float] = Option(
        key="watermark.lookahead.millis",
        parser=Duration(),
        default=0.0,
        doc="How far a shard may be ahead of the others in event time. With 0, no shard waits. "
        "With leases, set it to at least twice watermark.sync.interval and at least "
        "lease.failovermillis.",
    )
    queue_capacity: Option[int] = Option(
        key="watermark.sync.queue.capacity",
        parser=WholeNumber(minimum=1),
        default=100,
        doc="With watermark.lookahead.millis, reading a shard pauses while this many of its "
        "records wait for the application.",
    )
