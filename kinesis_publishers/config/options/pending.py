"""Options of the pool of records that were read and not yet handed on."""

from __future__ import annotations

from typing import Final

from kinesis_publishers.config.option import Namespace, Option
from kinesis_publishers.config.parsers import Duration, Size, WholeNumber

_SECTION = "Backpressure"

MAX_PENDING_RECORDS: Final = Option(
    key="pending.maxrecords",
    parser=WholeNumber(minimum=1),
    default=200_000,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="How many records of all shards may wait in memory.",
)
MAX_PENDING_BYTES: Final = Option(
    key="pending.maxbytes",
    parser=Size(),
    default=64 * 1024**2,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="How many bytes of all shards may wait in memory.",
)
WAIT_TIMEOUT: Final = Option(
    key="pending.waittimeoutmillis",
    parser=Duration(),
    default=30_000.0,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="How long a subscription may wait for space, or for the end of one delivery, before it is "
    "closed.",
)

OPTIONS: Final = (MAX_PENDING_RECORDS, MAX_PENDING_BYTES, WAIT_TIMEOUT)
