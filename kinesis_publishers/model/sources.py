"""The AWS services that have streams: their ARNs, their clients, and what reads their shards.

A service is one value that names classes, which :mod:`kinesis_publishers.assembly` loads.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from attrs import frozen

STREAM_NAME: Final = r"[a-zA-Z0-9_.-]{1,128}"


@frozen(kw_only=True)
class BuiltInPublisher:
    """A record publisher of this package, with what its factory can do, which is not loaded.

    Attributes:
        name: the value of ``stream.recordpublisher`` that selects it.
        factory: the class of its factory, as ``module:Class``.
        polls: whether it reads with GetRecords, at least at times.
    """

    name: str
    factory: str
    polls: bool = False
    reads_ranges: bool = False
    subscribes: bool = False
    needs_registration: bool = False


@frozen(kw_only=True)
class Source:
    """An AWS service that has streams.

    Attributes:
        arn_pattern: matches the ARN of a stream; its groups are ``region`` and ``name``.
        arn_form: that ARN, as messages show it.
        control_plane, data_plane: classes, as ``module:Class``.
        has_hash_keys: whether the open shards of a stream divide all hash keys among them.
    """

    arn_pattern: str
    arn_form: str
    control_plane: str
    data_plane: str
    publishers: tuple[BuiltInPublisher, ...]
    has_hash_keys: bool = True


POLLING: Final = BuiltInPublisher(
    name="POLLING",
    factory="kinesis_publishers.publishers.polling:PollingRecordPublisherFactory",
    polls=True,
    reads_ranges=True,
)
EFO: Final = BuiltInPublisher(
    name="EFO",
    factory="kinesis_publishers.publishers.fanout:FanOutRecordPublisherFactory",
    reads_ranges=True,
    subscribes=True,
    needs_registration=True,
)
KINESIS: Final = Source(
    arn_pattern=r"arn:aws[a-z-]*:kinesis:(?P<region>[a-z0-9-]+):[0-9]{12}:stream/"
    rf"(?P<name>{STREAM_NAME})",
    arn_form="arn:aws:kinesis:<region>:<account>:stream/<name>",
    control_plane="kinesis_publishers.aws.control_plane:Boto3ControlPlane",
    data_plane="kinesis_publishers.aws.data_plane:AioDataPlane",
    publishers=(POLLING, EFO),
)
SOURCES: Final = (KINESIS,)
PUBLISHERS: Final = {one.name: one for source in SOURCES for one in source.publishers}

#: The ARN of a stream consumer, which only Kinesis has.
CONSUMER_ARN: Final = rf"{KINESIS.arn_pattern}/consumer/{STREAM_NAME}:[0-9]+"
CONSUMER_ARN_FORM: Final = (
    "arn:aws:kinesis:<region>:<account>:stream/<stream>/consumer/<name>:<created>"
)


@lru_cache(maxsize=1024)
def _found(arn: str) -> tuple[Source | None, str]:
    for source in SOURCES:
        if match := re.fullmatch(source.arn_pattern, arn):
            return source, match["name"]
    return None, arn.rpartition("/")[2]


def source_of(arn: str | None) -> Source | None:
    """Return the service whose stream has this ARN, ``None`` if it is not the ARN of a stream."""
    return _found(arn)[0] if arn else None


def stream_name_of(arn: str) -> str:
    return _found(arn)[1]


def region_of(arn: str) -> str:
    """Return the region in the ARN of a stream or of a stream consumer."""
    return arn.split(":", 4)[3]


def stream_arn_of(consumer_arn: str) -> str:
    """Return the ARN of the stream on which a consumer is registered."""
    return consumer_arn.partition("/consumer/")[0]


def consumer_name_of(consumer_arn: str) -> str:
    """Return the name of a consumer, which is empty if this is not the ARN of one."""
    return consumer_arn.partition("/consumer/")[2].rpartition(":")[0]
