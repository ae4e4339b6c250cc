"""Options of the enhanced fan-out publisher (SubscribeToShard)."""

from __future__ import annotations

import re
from typing import Final

from kinesis_publishers.config.choices import Http2Client, HttpVersion
from kinesis_publishers.config.option import Namespace, Option, OptionFamily
from kinesis_publishers.config.parsers import Choice, Duration, Text, WholeNumber

_SECTION = "Enhanced fan-out"

MAX_CONCURRENCY: Final = Option(
    key="stream.efo.http-client.max-concurrency",
    parser=WholeNumber(minimum=1),
    default=10_000,
    section=_SECTION,
    doc="The connection limit of the data plane, and of subscriptions over HTTP/1.1; over HTTP/2 "
    "each has a connection of its own, without a limit.",
)
HTTP_VERSION: Final = Option(
    key="stream.efo.http-version",
    parser=Choice(members=HttpVersion),
    default=HttpVersion.AUTO,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="The protocol of subscriptions: 2, 1.1, or auto (2 where an https endpoint offers it, as "
    "AWS does, and 1.1 otherwise).",
)
HTTP2_CLIENT: Final = Option(
    key="stream.efo.http2-client",
    parser=Choice(members=Http2Client),
    default=Http2Client.HTTPX,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="What carries subscriptions over HTTP/2: httpx, or pyreqwest, which takes a third of the "
    "CPU (pip install 'kinesis-publishers[fast]').",
)
READ_TIMEOUT: Final = Option(
    key="stream.efo.http-client.read-timeout",
    parser=Duration(minimum=1.0),
    default=360_000.0,
    section=_SECTION,
    doc="The socket read timeout of a subscription.",
)
SUBSCRIBE_TIMEOUT: Final = Option(
    key="shard.subscribetoshard.timeout",
    parser=Duration(unit="s", minimum=1.0),
    default=60.0,
    section=_SECTION,
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
        guarded=r"^(?!kinesis_publishers\.errors\.\w+$).*\.",
        section="Retries",
        doc="An error after which reading a shard is tried again as often as it takes, beside the "
        "built-in ones: i counts from 0 without gaps, and every one counts.",
    ),
    placeholder="[i]",
    name_pattern=re.compile(r"\[[0-9]{1,4}\]"),
)

OPTIONS: Final = (
    MAX_CONCURRENCY,
    HTTP_VERSION,
    HTTP2_CLIENT,
    READ_TIMEOUT,
    SUBSCRIBE_TIMEOUT,
)
FAMILIES: Final = (RECOVERABLE_ERRORS,)
