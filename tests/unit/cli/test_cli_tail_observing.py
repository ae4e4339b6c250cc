"""What a tail reads with, given the properties of an application."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from kinesis_publishers.cli.shared.connection import Connection, by_full_key
from kinesis_publishers.cli.tail import observer_properties
from kinesis_publishers.config import (
    CheckpointConfig,
    DeregistrationPolicy,
    InitialPositionConfig,
    MetricsConfig,
    PollingConfig,
    RegistrationConfig,
    RegistrationStrategy,
    SourceConfig,
    WatermarkConfig,
)
from kinesis_publishers.errors import ConfigErrors

_ASSIGNER = "kinesis.watermark.assigner"
_POSITION = "kinesis.stream.initpos"
_SHARDS = "kinesis.stream.initpos.shards"
_APPLICATION = {"kinesis.checkpoint.application": "ledger"}
_NAME = "kinesis.stream.efo.consumername"
_EFO = {"kinesis.stream.recordpublisher": "EFO"}
_LEDGER = {**_EFO, _NAME: "ledger"}


def arn(name: str, stream: str = "orders") -> dict[str, str]:
    """Return the property of a consumer that is registered by hand."""
    value = f"arn:aws:kinesis:us-east-1:123456789012:stream/{stream}/consumer/{name}:1"
    return {f"kinesis.stream.efo.consumerarn.{stream}": value}


_BY_HAND = {"kinesis.stream.efo.registration": "NONE"}
_NONE = {**_EFO, **_BY_HAND, **arn("ledger")}


class Observed:
    """The properties of a tail, and what it says of them.

    Args:
        file: the file's properties in addition to the stream.
        pairs: single properties of the command line.
        streams: the streams that the command line names.
        position: where the command line's own options say to begin.
    """

    def __init__(
        self,
        file: dict[str, str],
        pairs: dict[str, str] | None = None,
        *streams: str,
        position: dict[str, str] | None = None,
    ) -> None:
        lines = {"kinesis.streams": "orders", **file}
        named = {"kinesis.streams": ",".join(streams)} if streams else {}
        line = by_full_key([*(pairs or {}).items(), *named.items(), ("aws.region", "us-east-1")])
        connection = Connection(tuple(lines.items()), line)
        self.properties, self.left_out = observer_properties(connection, position or {})

    def get(self, option: Any) -> Any:
        return self.properties.get(option)

    @property
    def position(self) -> str:
        return str(self.get(InitialPositionConfig.position).value)

    @property
    def publisher(self) -> str:
        return str(self.get(SourceConfig.record_publisher))

    @property
    def consumer(self) -> tuple[str | None, list[str | None]]:
        """The name and the ARNs with which consumers are found."""
        arns = self.properties.members(RegistrationConfig.consumer_arn)
        return self.get(RegistrationConfig.consumer_name), list(arns.values())


@pytest.mark.parametrize(
    ("file", "chosen", "expected"),
    [(None, None, 1000), ("200", None, 1000), ("5s", None, 5000), ("5s", "20", 20)],
)
def test_it_polls_once_a_second_unless_it_is_told_otherwise(
    file: str | None, chosen: str | None, expected: float
) -> None:
    key = "kinesis.shard.getrecords.intervalmillis"
    observed = Observed({key: file} if file else {}, {key: chosen} if chosen else {})
    assert observed.get(PollingConfig.interval_seconds) == expected
    assert observed.left_out == []


def test_where_it_polls_in_place_of_fan_out_it_does_so_once_a_second() -> None:
    observed = Observed(_LEDGER)
    assert (observed.publisher, observed.get(PollingConfig.interval_seconds)) == ("POLLING", 1000)


def test_a_custom_publisher_is_left_as_it_is() -> None:
    plugin = "kinesis_publishers.testing.fakes:ScriptedPublisherFactory"
    file = {"kinesis.stream.recordpublisher": plugin, _NAME: "ledger"}
    observed = Observed(file)
    assert observed.publisher == plugin
    assert observed.get(PollingConfig.interval_seconds) == 200
    assert observed.consumer == ("ledger", [])


@pytest.mark.parametrize(
    "began",
    [
        {_POSITION: "TRIM_HORIZON"},
        {_POSITION: "AT_TIMESTAMP", f"{_POSITION}.timestamp": "0"},
        {_SHARDS: json.dumps({"shardId-000000000000": {"iteratorType": "TRIM_HORIZON"}})},
    ],
)
def test_where_an_application_began_is_not_where_a_tail_begins(began: dict[str, str]) -> None:
    observed = Observed(_APPLICATION | began)
    assert observed.position == "LATEST"
    assert observed.get(InitialPositionConfig.shards) == ()
    (sentence,) = observed.left_out
    assert sentence == (
        "kinesis.checkpoint.application is left out: tail neither reads nor writes checkpoints, "
        "and begins at LATEST, unless --start or -P say where."
    )


@pytest.mark.parametrize("file", [_APPLICATION, {}])
def test_checkpoints_are_not_even_written_if_the_command_line_asks(file: dict[str, str]) -> None:
    observed = Observed(file, {**_APPLICATION, "kinesis.checkpoint.store": "memory"})
    assert not observed.properties.is_given(CheckpointConfig.application)
    assert not observed.properties.is_given(CheckpointConfig.store)


def test_without_checkpoints_it_begins_where_the_file_says() -> None:
    observed = Observed({_POSITION: "TRIM_HORIZON"})
    assert (observed.position, observed.left_out) == ("TRIM_HORIZON", [])


@pytest.mark.parametrize(
    ("pairs", "position", "expected"),
    [
        ({_POSITION: "TRIM_HORIZON"}, {}, "TRIM_HORIZON"),
        ({"flink.stream.initpos": "TRIM_HORIZON"}, {}, "TRIM_HORIZON"),
        ({}, {_POSITION: "TRIM_HORIZON", _SHARDS: "{}"}, "TRIM_HORIZON"),
        ({f"{_POSITION}.timestamp": "0"}, {}, "AT_TIMESTAMP"),
    ],
)
def test_it_begins_where_the_command_line_says(
    pairs: dict[str, str], position: dict[str, str], expected: str
) -> None:
    file = {
        **_APPLICATION,
        _POSITION: "AT_TIMESTAMP",
        f"{_POSITION}.timestamp": "100",
        _SHARDS: json.dumps({"shardId-000000000000": {"iteratorType": "LATEST"}}),
    }
    observed = Observed(file, pairs, position=position)
    assert observed.position == expected
    assert observed.get(InitialPositionConfig.shards) == ()


def test_shards_of_an_application_do_not_contradict_other_streams() -> None:
    positions = {"shardId-000000000000": {"iteratorType": "LATEST"}}
    observed = Observed({**_APPLICATION, _SHARDS: json.dumps(positions)}, {}, "a", "b")
    assert observed.position == "LATEST"


@pytest.mark.parametrize(
    ("text", "sinks"),
    [("summary", ("summary",)), ("log, SUMMARY", ("log", "summary")), ("none", ())],
)
def test_sinks_that_write_to_the_log_alone_stay(text: str, sinks: tuple[str, ...]) -> None:
    observed = Observed({"kinesis.metrics.sinks": text})
    assert (observed.get(MetricsConfig.sinks), observed.left_out) == (sinks, [])


@pytest.mark.parametrize("sinks", ["cloudwatch", "summary,opentelemetry", "their.module:Sink"])
def test_the_metrics_of_an_application_are_not_added_to(sinks: str) -> None:
    observed = Observed({"kinesis.metrics.sinks": sinks})
    assert observed.get(MetricsConfig.sinks) == ("log",)
    assert observed.left_out == [
        "kinesis.metrics.sinks is left out: those metrics are the application's."
    ]


def test_metrics_that_the_command_line_asks_for_are_sent() -> None:
    pair = {"kinesis.metrics.sinks": "cloudwatch"}
    assert Observed(pair, pair).get(MetricsConfig.sinks) == ("cloudwatch",)


@pytest.mark.parametrize("file", [_LEDGER, _NONE, {**_LEDGER, **arn("ledger")}])
@pytest.mark.parametrize("pairs", [{}, {_NAME: "ledger"}, arn("ledger")])
def test_the_consumer_of_an_application_is_left_alone(
    file: dict[str, str], pairs: dict[str, str]
) -> None:
    observed = Observed(file, pairs)
    assert observed.publisher == "POLLING"
    assert "recordpublisher=EFO is left out: tail polls" in observed.left_out[-1]


@pytest.mark.parametrize("pairs", [{}, {_NAME: "ledger"}, {**_BY_HAND, **arn("ledger")}])
@pytest.mark.parametrize("file", [_LEDGER, _NONE])
def test_by_fan_out_a_consumer_of_its_own_is_asked_for(
    file: dict[str, str], pairs: dict[str, str]
) -> None:
    asks = "needs its own stream consumer.*another name than the application's"
    with pytest.raises(click.UsageError, match=asks):
        Observed(file, _EFO | pairs)


def test_with_a_name_of_its_own_it_reads_as_the_application_does() -> None:
    observed = Observed(_LEDGER, {"KINESIS.stream.efo.consumername": "tail"})
    assert (observed.publisher, observed.consumer) == ("EFO", ("tail", []))
    assert observed.left_out == []


def test_a_consumer_of_its_own_is_removed_although_that_of_the_application_stays() -> None:
    never = {"kinesis.stream.efo.deregister": "never"}
    observed = Observed(_LEDGER | never, {_NAME: "tail"})
    assert observed.get(RegistrationConfig.deregister) is DeregistrationPolicy.CREATED
    assert observed.left_out == [
        "kinesis.stream.efo.deregister is left out: tail reads with its own stream consumer."
    ]
    chosen = Observed(_LEDGER, {_NAME: "tail", **never})
    assert chosen.get(RegistrationConfig.deregister) is DeregistrationPolicy.NEVER


def test_a_name_is_enough_where_the_application_registers_nothing() -> None:
    observed = Observed(_NONE, {**_EFO, _NAME: "tail"})
    assert observed.consumer == ("tail", [])
    assert observed.get(RegistrationConfig.strategy) is RegistrationStrategy.LAZY
    (sentence,) = observed.left_out
    assert sentence.startswith("kinesis.stream.efo.consumerarn.orders is left out: tail reads with")


@pytest.mark.parametrize("pairs", [{}, _BY_HAND])
@pytest.mark.parametrize("file", [_NONE, {**_LEDGER, **arn("ledger", "returns")}])
def test_consumers_that_were_registered_by_hand_are_own_ones(
    file: dict[str, str], pairs: dict[str, str]
) -> None:
    observed = Observed(file, pairs | arn("tail"))
    assert observed.publisher == "EFO"
    assert observed.consumer == (None, list(arn("tail").values()))
    assert observed.get(RegistrationConfig.strategy) is RegistrationStrategy.NONE


def test_only_consumers_of_streams_that_are_read_matter() -> None:
    file = {**_NONE, **arn("ledger", "returns"), "kinesis.streams": "orders,returns"}
    observed = Observed(file, arn("tail", "returns"), "returns")
    assert observed.consumer == (None, list(arn("tail", "returns").values()))
    with pytest.raises(ConfigErrors, match=r"set kinesis\.stream\.efo\.consumerarn\.orders to"):
        Observed(file, arn("tail", "returns"))


def test_another_stream_is_polled_although_the_file_has_no_consumer_of_it() -> None:
    assert Observed(_NONE, {}, "other").publisher == "POLLING"


def test_what_is_left_out_does_not_make_the_rest_right() -> None:
    with pytest.raises(ConfigErrors) as caught:
        Observed({**_APPLICATION, "aws.regions": "x"}, {_POSITION: "AT_TIMESTAMP"})
    assert len(caught.value.problems) == 2


def test_a_tail_makes_no_watermarks_whatever_the_file_says_of_them() -> None:
    file = {
        _ASSIGNER: "not.installed.here:Placed",
        "kinesis.custom.placed.field": "at",
        "flink.watermark.lookahead.millis": "60s",
        "kinesis.shard.idle.interval": "not a duration",
    }
    observed = Observed(file, {"kinesis.watermark.disordermillis": "5s"})
    assert observed.properties.given_keys(WatermarkConfig.options()) == (_ASSIGNER,)
    assert observed.get(WatermarkConfig.assigner) == "ARRIVAL"
    assert observed.left_out == []
