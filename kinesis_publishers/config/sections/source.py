"""The streams, the publisher, and how aggregates and lost data are treated."""

from __future__ import annotations

import re
from enum import Enum
from typing import ClassVar

from attrs import frozen

from kinesis_publishers.config.option import Derived, Lookup, Option, Section, show_value
from kinesis_publishers.config.parsers import PluginName, Text
from kinesis_publishers.errors import InvalidOptionError, MissingOptionError
from kinesis_publishers.model.sources import (
    KINESIS,
    POLLING,
    PUBLISHERS,
    SOURCES,
    STREAM_NAME,
    BuiltInPublisher,
    Source,
    region_of,
    source_of,
    stream_name_of,
)


@frozen
class StreamSelector:
    """One stream, with its ARN where that was given."""

    name: str
    arn: str | None = None

    @property
    def reference(self) -> str:
        """What calls name it by: the ARN, else the name."""
        return self.arn or self.name

    @property
    def region(self) -> str | None:
        """The region in the ARN, None without one."""
        return region_of(self.arn) if self.arn else None

    @classmethod
    def parse(cls, text: str) -> StreamSelector:
        """Return the stream that ``text`` means; raises ``ValueError`` for neither name nor ARN."""
        if source_of(text):
            return cls(stream_name_of(text), text)
        if re.fullmatch(STREAM_NAME, text):
            return cls(text)
        raise ValueError("neither a name nor an ARN")


def selected_streams(lookup: Lookup) -> tuple[StreamSelector, ...]:
    """Return the streams, if any; an ``InvalidOptionError`` says of every entry what is wrong."""
    streams: list[StreamSelector] = []
    problems: list[str] = []
    text = lookup.get(StreamsConfig.names)
    for part in (part.strip() for part in text.split(",")) if text else ():
        try:
            stream = StreamSelector.parse(part)
        except ValueError:
            problems.append(
                f"{show_value(part, secret=False)} is neither the name of a stream (1 to 128 "
                "letters, digits, '_', '.' or '-') nor an ARN "
                f"({' or '.join(source.arn_form for source in SOURCES)})"
            )
            continue
        if any(stream.name == other.name for other in streams):
            problems.append(f"the stream {stream.name!r} is named twice")
        streams.append(stream)
    if problems:
        written_key = lookup.written_key(StreamsConfig.names)
        raise InvalidOptionError(f"{written_key}: {'; '.join(problems)}")
    return tuple(streams)


def selected_source(lookup: Lookup) -> Source:
    """Return the service that has the streams: Kinesis, unless an ARN is one of another service."""
    found = (source_of(stream.arn) for stream in selected_streams(lookup))
    return next((source for source in found if source), KINESIS)


def _streams(lookup: Lookup) -> tuple[StreamSelector, ...]:
    streams = selected_streams(lookup)
    if not streams:
        raise MissingOptionError(f"{StreamsConfig.names.full_key} is required")
    return streams


class StreamsConfig(Section, section="Source"):
    """The streams to read: at least one, each name once, in the order of the configuration."""

    names: ClassVar[Option[str | None]] = Option(
        key="streams",
        parser=Text(accepts="names or ARNs of streams, separated by commas"),
        required=True,
        doc="The streams to read: names or ARNs, separated by commas.",
    )
    streams: Derived[tuple[StreamSelector, ...]] = Derived(_streams)


def built_in_publisher(lookup: Lookup) -> BuiltInPublisher | None:
    """Return what ``stream.recordpublisher`` selects, ``None`` for a class of the user's own."""
    return PUBLISHERS.get(lookup.get(SourceConfig.record_publisher))


class AggregationMode(Enum):
    AUTO = "auto"
    KPL = "kpl"
    UNFILTERED = "unfiltered"
    OFF = "off"


class OnInvalidAggregate(Enum):
    PLAIN = "plain"
    FAIL = "fail"
    DEAD_LETTER = "dead-letter"


class SourceConfig(Section, section="Source"):
    """How aggregates and lost data are treated."""

    record_publisher: ClassVar[Option[str]] = Option(
        key="stream.recordpublisher",
        parser=PluginName(
            built_in={one.name: one.factory for one in PUBLISHERS.values()},
            group="kinesis_publishers.record_publishers",
        ),
        default=POLLING.name,
        guarded=":",
        doc="How records are read: POLLING (GetRecords), EFO (SubscribeToShard), or a factory of "
        "your own.",
    )
    aggregation: Option[AggregationMode] = Option(
        key="aggregation",
        default=AggregationMode.AUTO,
        doc="How aggregates are delivered. off delivers them whole; all other values deaggregate "
        "them. After a reshard, an aggregate may contain records of other shards: auto drops them "
        "from aggregates of the KPL, kpl from all aggregates, unfiltered from none.",
    )
    on_invalid_aggregate: Option[OnInvalidAggregate] = Option(
        key="aggregation.on-invalid",
        default=OnInvalidAggregate.PLAIN,
        doc="What happens to an invalid aggregate: it is delivered unchanged (plain), raises an "
        "error (fail), or goes to the DeadLetter of scan (dead-letter).",
    )
    fail_on_data_loss: Option[bool] = Option(
        key="failondataloss",
        default=True,
        doc="Whether a trimmed position or a re-created stream is an error.",
    )

    @classmethod
    def from_properties(cls, properties: Lookup) -> SourceConfig:
        """Read the choices; refuse to put an invalid aggregate aside, where there is no place."""
        config = super().from_properties(properties)
        if config.on_invalid_aggregate is OnInvalidAggregate.DEAD_LETTER:
            raise InvalidOptionError(
                f"{properties.written_key(cls.on_invalid_aggregate)} is dead-letter, and "
                "only scan(properties, process, on_error=DeadLetter(put)) has one, with a process "
                "that takes single records: use plain or fail elsewhere"
            )
        return config
