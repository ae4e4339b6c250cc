"""Checkpoints and leases without Spark: where they are stored, and which shards are read."""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final, TypeAlias

from kinesis_publishers.config.option import Derived, Lookup, Option, Section
from kinesis_publishers.config.parsers import (
    URL,
    Choice,
    Duration,
    Parsed,
    PluginName,
    Scalar,
    Text,
    WholeNumber,
)
from kinesis_publishers.config.retries import RetryOptions
from kinesis_publishers.errors import InvalidOptionError

_STORES: Final = {
    "memory": "kinesis_publishers.checkpoints:MemoryCheckpointStore",
    "sqlite": "kinesis_publishers.checkpoints.sql:SqlCheckpointStore",
    "dynamodb": "kinesis_publishers.checkpoints.dynamodb:DynamoDbCheckpointStore",
    "sql": "kinesis_publishers.checkpoints.sql:SqlCheckpointStore",
    "redis": "kinesis_publishers.checkpoints.redis:RedisCheckpointStore",
}

# An @ or a slash in a password would let a driver take a part of it for the host.
_SERVER: Final = (
    r"://(?:[^/?#@\s\[\]]*@)?(?:\[[^\]\s]+\]|[^/?#@:\s]*)(?::[0-9]{1,5})?(?:[/?][^@]*)?"
)
_ESCAPES: Final = "special characters of a user or password as %40 for @"


class CheckpointConfig(Section, section="Checkpoints"):
    """Whether progress is stored, where, and how often."""

    application: Option[str | None] = Option(
        key="checkpoint.application",
        parser=Text(accepts="1 to 128 letters, digits or _.-", pattern=r"[a-zA-Z0-9_.-]{1,128}"),
        doc="The name of the application, which owns the checkpoints. It turns checkpoints on: "
        "reading continues from the stored position.",
    )
    store: Option[str] = Option(
        key="checkpoint.store",
        parser=PluginName(built_in=_STORES, group="kinesis_publishers.checkpoint_stores"),
        default="sqlite",
        doc="Where checkpoints are kept: a file (sqlite), a table (dynamodb, sql), Redis (redis), "
        "this process (memory) or a store of your own.",
    )
    interval_seconds: Option[float] = Option(
        key="checkpoint.intervalmillis",
        default=10_000.0,
        doc="How long processed records may wait for their checkpoint; a crash repeats them.",
    )
    max_records: Option[int] = Option(
        key="checkpoint.maxrecords",
        default=100_000,
        doc="How many processed records of all shards may wait for their checkpoint.",
    )
    retry: RetryOptions = RetryOptions(
        "checkpoint.store",
        "the store of checkpoints",
        retries=10,
        delays=(200.0, 5000.0),
    )


def _sqlite_path(lookup: Lookup) -> Path:
    option = SqliteCheckpointConfig.written_path
    written, state = lookup.get(option), os.environ.get("XDG_STATE_HOME", "")
    if written is None:
        # A relative path in it must be ignored (XDG Base Directory Specification).
        folder = state if os.path.isabs(state) else "~/.local/state"
        written = f"{folder}/kinesis-publishers/checkpoints.sqlite3"
    try:
        return Path(written).expanduser()
    except RuntimeError as error:
        raise InvalidOptionError(
            f"{option.full_key}: {error}; set it to a path without ~"
        ) from error


class SqliteCheckpointConfig(Section, section="Checkpoints"):
    """Which file has the checkpoints; in ``path``, ``~`` has been replaced."""

    written_path: ClassVar[Option[str | None]] = Option(
        key="checkpoint.sqlite.path",
        parser=Text(accepts="the path of a file"),
        doc="The file of sqlite. The default is kinesis-publishers/checkpoints.sqlite3 below "
        "$XDG_STATE_HOME, or below ~/.local/state.",
    )
    path: Derived[Path] = Derived(_sqlite_path)


class BillingMode(Enum):
    PAY_PER_REQUEST = "PAY_PER_REQUEST"
    PROVISIONED = "PROVISIONED"


Tags: TypeAlias = tuple[tuple[str, str], ...]
# DynamoDB allows more, but a comma and the first equals sign are between tags and inside of one.
_TAG: Final = r"(?!aws:)([\w .:/+@-]{1,128})=([\w .:/+@=-]{0,256})"


def _parse_tags(value: Scalar) -> Tags:
    pairs = [re.fullmatch(_TAG, one.strip()) for one in str(value).split(",")]
    tags = {pair[1]: pair[2] for pair in pairs if pair is not None}
    if len(tags) != len(pairs):
        raise ValueError("not pairs with different keys")
    return tuple(tags.items())


class DynamoDbCheckpointConfig(Section, section="Checkpoints"):
    """Which table has the checkpoints."""

    table: Option[str] = Option(
        key="checkpoint.dynamodb.table",
        parser=Text(accepts="3 to 255 letters, digits or _.-", pattern=r"[a-zA-Z0-9_.-]{3,255}"),
        default="kinesis-publishers-checkpoints",
        doc="The table of dynamodb, which any number of applications may share. With leases in "
        "the format of the KCL, each application has its own, by default with its name.",
    )
    endpoint_url: Option[str | None] = Option(
        key="checkpoint.dynamodb.endpoint",
        parser=URL,
        doc="The URL of a DynamoDB endpoint other than AWS's own.",
    )
    create_table: Option[bool] = Option(
        key="checkpoint.dynamodb.createtable",
        default=True,
        doc="Whether a missing table is created.",
    )
    billing_mode: Option[BillingMode] = Option(
        key="checkpoint.dynamodb.billingmode",
        default=BillingMode.PAY_PER_REQUEST,
        doc="The billing mode of a table that is created: on demand, or with provisioned capacity.",
    )
    read_capacity: Option[int] = Option(
        key="checkpoint.dynamodb.readcapacity",
        default=10,
        doc="The read capacity units of a table that is created with PROVISIONED.",
    )
    write_capacity: Option[int] = Option(
        key="checkpoint.dynamodb.writecapacity",
        default=10,
        doc="The write capacity units of a table that is created with PROVISIONED.",
    )
    tags: Option[Tags] = Option(
        key="checkpoint.dynamodb.tags",
        parser=Parsed("key=value pairs, separated by commas", _parse_tags),
        default=(),
        doc="The tags of a table that is created.",
    )


class SqlCheckpointConfig(Section, section="Checkpoints"):
    """Which table of a database has the checkpoints."""

    url: Option[str | None] = Option(
        key="checkpoint.sql.url",
        parser=Text(
            accepts="a URL that begins with postgresql://, mysql:// or mariadb:// "
            f"({_ESCAPES}), or sqlite:///path/of/a.file",
            pattern=rf"(?:postgres(?:ql)?|mysql|mariadb){_SERVER}|sqlite:///[^?#:]+",
        ),
        secret=True,
        doc="The database of sql, as postgresql://user:password@host/database, mysql:// and "
        "mariadb:// alike; or sqlite:///path/of/a.file.",
    )
    table: Option[str] = Option(
        key="checkpoint.sql.table",
        parser=Text(
            accepts="the name of a table, or schema.table",
            pattern=r"(?:[a-zA-Z_]\w{0,62}\.)?[a-zA-Z_]\w{0,62}",
        ),
        default="kinesis_checkpoints",
        doc="The table of sql, which any number of applications may share.",
    )
    create_table: Option[bool] = Option(
        key="checkpoint.sql.createtable", default=True, doc="Whether a missing table is created."
    )


class RedisCheckpointConfig(Section, section="Checkpoints"):
    """Which keys of which Redis have the checkpoints."""

    url: Option[str | None] = Option(
        key="checkpoint.redis.url",
        parser=Text(
            accepts=f"a URL that begins with redis:// or rediss:// ({_ESCAPES})",
            pattern=rf"rediss?{_SERVER}",
        ),
        secret=True,
        doc="The Redis of redis, as redis://user:password@host:6379/0; rediss:// uses TLS.",
    )
    prefix: Option[str] = Option(
        key="checkpoint.redis.prefix",
        parser=Text(accepts="1 to 128 letters, digits or _.:-", pattern=r"[a-zA-Z0-9_.:-]{1,128}"),
        default="kinesis-publishers",
        doc="The first part of each key, which the name of the application follows.",
    )


STORE_SECTIONS: Final[dict[str, type[Section]]] = {
    "sqlite": SqliteCheckpointConfig,
    "dynamodb": DynamoDbCheckpointConfig,
    "sql": SqlCheckpointConfig,
    "redis": RedisCheckpointConfig,
}
CHECKPOINT_OPTIONS: Final = (
    *CheckpointConfig.options(),
    *(option for section in STORE_SECTIONS.values() for option in section.options()),
)

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
    written = lookup.get(AssignmentConfig.written_shards) or ""
    pairs = (part.strip().partition(":") for part in written.split(",") if part.strip())
    return tuple((stream, shard_id) for stream, _, shard_id in pairs)


class AssignmentConfig(Section, section="Workers"):
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


class LeaseConfig(Section, section="Workers"):
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
        default=30_000.0,
        doc="How long a worker may take to finish its records of a shard that another one wants. "
        "Then the shard is taken from it, with 0 immediately, and records may be repeated.",
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


OF_APPLICATION: Final = (
    *CHECKPOINT_OPTIONS,
    *LeaseConfig.options(),
    AssignmentConfig.written_assigner,
)
"""What readers that record no progress leave out: it has no effect without an application."""
