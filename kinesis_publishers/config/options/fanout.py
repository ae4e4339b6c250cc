"""Options of the enhanced fan-out publisher (SubscribeToShard)."""

from __future__ import annotations

import re
from typing import Final

from kinesis_publishers.config.option import Option, OptionFamily
from kinesis_publishers.config.parsers import Duration, Text, WholeNumber

_SECTION = "Enhanced fan-out"

MAX_CONCURRENCY: Final = Option(
    key="stream.efo.http-client.max-concurrency",
    parser=WholeNumber(minimum=1),
    default=10_000,
    section=_SECTION,
    doc="The connection limit of the data plane.",
)
READ_TIMEOUT: Final = Option(
    key="stream.efo.http-client.read-timeout",
    parser=Duration(minimum=1.0),
    default=360_000.0,
    section=_SECTION,
    implemented=False,
    doc="The socket read timeout of a subscription.",
)
SUBSCRIBE_TIMEOUT: Final = Option(
    key="shard.subscribetoshard.timeout",
    parser=Duration(unit="s", minimum=1.0),
    default=60.0,
    section=_SECTION,
    implemented=False,
    doc="How long SubscribeToShard may take to answer.",
)
RECOVERABLE_ERRORS: Final[OptionFamily[str | None]] = OptionFamily(
    member=Option(
        key="shard.consumer.error.recoverable[i].exception",
        parser=Text(
            accepts="the dotted name of an exception class, or an AWS error code",
            pattern=re.compile(r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)*"),
        ),
        default=None,
        section=_SECTION,
        implemented=False,
        doc="An error that reopens a subscription, beside the built-in ones: i counts from 0 "
        "without gaps, and every one counts.",
    ),
    placeholder="[i]",
    name_pattern=re.compile(r"\[[0-9]{1,4}\]"),
)

OPTIONS: Final = (MAX_CONCURRENCY, READ_TIMEOUT, SUBSCRIBE_TIMEOUT)
FAMILIES: Final = (RECOVERABLE_ERRORS,)
