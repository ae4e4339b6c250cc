"""Options of the checkpoints that are kept without Spark."""

from __future__ import annotations

import re
from typing import Final

from kinesis_publishers.config.option import Namespace, Option
from kinesis_publishers.config.options.aws import URL
from kinesis_publishers.config.options.retries import declare_retries
from kinesis_publishers.config.parsers import Duration, Flag, Scalar, Text, WholeNumber

_SECTION = "Checkpoints"
BUILT_IN_STORES: Final = ("memory", "sqlite", "dynamodb")
_STORE_NAME = Text(
    accepts="memory, sqlite, dynamodb, module:Class or the name of an installed entry point",
    pattern=re.compile(r"[\w.-]+|[\w.]+:[\w.]+"),
)


class _StoreName:
    """Lower-cases the built-in names, which match without regard to case; keeps all others."""

    accepts = _STORE_NAME.accepts
    unit = None

    def __call__(self, value: Scalar) -> str:
        name = _STORE_NAME(value)
        return name.lower() if name.lower() in BUILT_IN_STORES else name


APPLICATION: Final[Option[str | None]] = Option(
    key="checkpoint.application",
    parser=Text(
        accepts="1 to 128 letters, digits or _.-", pattern=re.compile(r"[a-zA-Z0-9_.-]{1,128}")
    ),
    default=None,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="Whose checkpoints they are. Setting it turns checkpoints on: reading goes on where the "
    "application of this name has got to.",
)
STORE: Final[Option[str]] = Option(
    key="checkpoint.store",
    parser=_StoreName(),
    default="sqlite",
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="Where checkpoints are kept: a file (sqlite), a table (dynamodb), this process (memory) "
    "or a store of your own as module:Class or entry point.",
)
INTERVAL: Final = Option(
    key="checkpoint.intervalmillis",
    parser=Duration(),
    default=10_000.0,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="How long processed records may wait for their checkpoint. A crash repeats them.",
)
MAX_RECORDS: Final = Option(
    key="checkpoint.maxrecords",
    parser=WholeNumber(minimum=1),
    default=100_000,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="How many processed records of all shards may wait for their checkpoint.",
)
SQLITE_PATH: Final[Option[str | None]] = Option(
    key="checkpoint.sqlite.path",
    parser=Text(accepts="the path of a file"),
    default=None,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="The file of sqlite; if it is not set, kinesis-publishers/checkpoints.sqlite3 under "
    "$XDG_STATE_HOME, or under ~/.local/state.",
)
DYNAMODB_TABLE: Final = Option(
    key="checkpoint.dynamodb.table",
    parser=Text(
        accepts="3 to 255 letters, digits or _.-", pattern=re.compile(r"[a-zA-Z0-9_.-]{3,255}")
    ),
    default="kinesis-publishers-checkpoints",
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="The table of dynamodb, which any number of applications may share.",
)
DYNAMODB_ENDPOINT: Final[Option[str | None]] = Option(
    key="checkpoint.dynamodb.endpoint",
    parser=URL,
    default=None,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="The URL of the DynamoDB endpoint, where it is not AWS's own.",
)
DYNAMODB_CREATE_TABLE: Final = Option(
    key="checkpoint.dynamodb.createtable",
    parser=Flag(),
    default=True,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="Whether a table that is missing is created, with on-demand billing.",
)
STORE_RETRIES: Final = declare_retries(
    "checkpoint.store",
    "the store of checkpoints",
    (10, 200.0, 5000.0, 1.5),
    namespace=Namespace.OURS,
)

SQLITE_OPTIONS: Final = (SQLITE_PATH,)
DYNAMODB_OPTIONS: Final = (DYNAMODB_TABLE, DYNAMODB_ENDPOINT, DYNAMODB_CREATE_TABLE)
OPTIONS: Final = (
    APPLICATION,
    STORE,
    INTERVAL,
    MAX_RECORDS,
    *SQLITE_OPTIONS,
    *DYNAMODB_OPTIONS,
    *STORE_RETRIES.as_tuple(),
)
