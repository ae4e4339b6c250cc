"""Which shards this process reads: all, some, or those that it has leases on."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Final

from kinesis_publishers.config.option import Derived, Lookup, Namespace, Option, Section
from kinesis_publishers.config.parsers import Choice, Duration, PluginName, Text, WholeNumber
from kinesis_publishers.config.sections.checkpoints import CheckpointConfig

ALL: Final = "ALL"
MANUAL: Final = "MANUAL"
LEASES: Final = "LEASES"
_ASSIGNERS: Final = {
    ALL: "kinesis_publishers.leases.assigners:AllShards",
    MANUAL: "kinesis_publishers.leases.assigners:NamedShards",
    # They are those of the checkpointer.
    LEASES: "kinesis_publishers.leases.assigners:AllShards",
}

_PAIR: Final = r"[a-zA-Z0-9_.-]{1,128}:[a-zA-Z0-9_.-]{1,128}"


class LeaseFormat(Enum):
    """The form in which leases are stored."""

    OWN = "own"
    KCL = "kcl"


def assigner_of(lookup: Lookup) -> str:
    """Return what decides which shards are read: a built-in name, or that of a class."""
    written = lookup.get(AssignmentConfig.written_assigner)
    if written is not None:
        return written
    if lookup.get(LeaseConfig.is_enabled):
        return LEASES
    return MANUAL if lookup.is_given(AssignmentConfig.written_shards) else ALL


def shards_of(lookup: Lookup) -> tuple[tuple[str, str], ...]:
    """Return the names of streams and the ids of their shards."""
    written = lookup.get(AssignmentConfig.written_shards) or ""
    pairs = (part.strip().partition(":") for part in written.split(",") if part.strip())
    return tuple((stream, shard_id) for stream, _, shard_id in pairs)


class AssignmentConfig(Section, section="Workers", namespace=Namespace.OURS):
    """Which of the shards this process reads."""

    written_assigner: ClassVar[Option[str | None]] = Option(
        key="shard.assigner",
        parser=PluginName(built_in=_ASSIGNERS, group="kinesis_publishers.shard_assigners"),
        guarded=":",
        doc="Which shards this process reads: ALL, MANUAL (those of kinesis.shards), LEASES "
        "(those on which it has leases), or what a class of your own decides. By default, "
        "kinesis.lease.enabled implies LEASES, and kinesis.shards implies MANUAL.",
    )
    assigner: Derived[str] = Derived(assigner_of)
    written_shards: ClassVar[Option[str | None]] = Option(
        key="shards",
        parser=Text(
            accepts="stream:shardId pairs, separated by commas",
            pattern=rf"\s*{_PAIR}(\s*,\s*{_PAIR})*\s*",
        ),
        doc="The only shards to read, as stream:shardId, separated by commas.",
    )
    shards: Derived[tuple[tuple[str, str], ...]] = Derived(shards_of)


def _lease_format(lookup: Lookup) -> LeaseFormat:
    is_dynamodb = lookup.get(CheckpointConfig.store) == "dynamodb"
    usual = LeaseFormat.KCL if is_dynamodb else LeaseFormat.OWN
    return lookup.get(LeaseConfig.written_format) or usual


class LeaseConfig(Section, section="Workers", namespace=Namespace.OURS):
    """How the workers of an application share its shards."""

    is_enabled: Option[bool] = Option(
        key="lease.enabled",
        default=False,
        doc="Whether the processes of kinesis.checkpoint.application share the shards, by leases "
        "in kinesis.checkpoint.store.",
    )
    worker_id: Option[str | None] = Option(
        key="lease.workerid",
        parser=Text(accepts="1 to 256 printable characters", pattern=r"[!-~]{1,256}"),
        doc="The name of this worker, unique among the live workers of the application. The "
        "default is made of the host, the process and a random number.",
    )
    failover_seconds: Option[float] = Option(
        key="lease.failovermillis",
        parser=Duration(minimum=1000.0),
        default=10_000.0,
        doc="How long a lease lasts without renewal, the same for all workers of an application. "
        "After that, other workers take over the shards of a dead worker.",
    )
    handover_seconds: Option[float] = Option(
        key="lease.handovermillis",
        parser=Duration(),
        default=30_000.0,
        doc="How long a worker may take to finish its records of a shard that another one wants. "
        "After that the shard is taken from it, and records may be repeated. With 0, it is "
        "taken immediately.",
    )
    max_leases: Option[int | None] = Option(
        key="lease.maxleasesforworker",
        parser=WholeNumber(minimum=1),
        doc="The largest number of shards that this worker reads. There is no limit by default.",
    )
    written_format: ClassVar[Option[LeaseFormat | None]] = Option(
        key="lease.format",
        parser=Choice(members=LeaseFormat),
        doc="How dynamodb stores leases. kcl, the default there, is the format of the Kinesis "
        "Client Library, which may work on the same table. own is the format of all other "
        "stores.",
    )
    format: Derived[LeaseFormat] = Derived(_lease_format)
