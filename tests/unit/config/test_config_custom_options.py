"""Options of a custom publisher: ``kinesis.custom.*``."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers.config import DecimalNumber, Option, Properties, Text
from kinesis_publishers.errors import ConfigErrors, InvalidOptionError, PluginLoadError
from kinesis_publishers_spark.aliases import parse_options

if TYPE_CHECKING:
    from kinesis_publishers.config.parsers import Parser


def option(key: str, parser: Parser[Any], default: Any = None, **more: Any) -> Option[Any]:
    return Option(key=key, parser=parser, default=default, doc="A test.", section="Test", **more)


PATH = option("custom.replay.path", Text(), required=True)
SPEED = option("custom.replay.speed", DecimalNumber(), 1.0)
PASSWORD = option("custom.replay.password", Text(), secret=True)
ALL = (PATH, SPEED, PASSWORD)
REPLAY = {
    "kinesis.streams": "orders",
    "aws.region": "eu-west-1",
    "kinesis.stream.recordpublisher": "replay",
    "kinesis.custom.replay.path": "/tmp",
}


def parse(**more: Any) -> Properties:
    custom = {f"kinesis.custom.replay.{key}": value for key, value in more.items()}
    return Properties.parse({**REPLAY, **custom})


def problems_of(properties: Properties) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        properties.custom(*ALL)
    return [str(problem) for problem in caught.value.problems]


def test_what_the_publisher_declares_is_read_with_its_type_and_default() -> None:
    own = parse(speed="2.5").custom(*ALL)
    assert (own.get(PATH), own.get(SPEED)) == ("/tmp", 2.5)
    assert parse().custom(*ALL).get(SPEED) == 1.0
    assert own.is_given(SPEED)


def test_the_other_keys_are_there_as_before() -> None:
    own = parse(speed=2).custom(*ALL)
    assert own.to_dict() == parse(speed=2).to_dict()


def test_every_problem_is_named_at_once() -> None:
    del (without_path := {**REPLAY})["kinesis.custom.replay.path"]
    bad = {"kinesis.custom.replay.spede": "2", "kinesis.custom.replay.speed": "fast"}
    assert problems_of(Properties.parse({**without_path, **bad})) == [
        "kinesis.custom.replay.spede: unknown option; did you mean kinesis.custom.replay.speed?",
        "kinesis.custom.replay.path is required: set it to a string that is not empty",
        "kinesis.custom.replay.speed: got 'fast', expected a number of at least 0",
    ]


def test_a_key_like_no_other_is_answered_with_those_that_there_are() -> None:
    (problem,) = problems_of(parse(colour="red"))
    assert "the publisher knows kinesis.custom.replay.path, " in problem


def test_nothing_is_shown_before_the_publisher_says_what_is_secret() -> None:
    properties = parse(password="hunter2")
    assert "hunter2" not in repr(properties)
    assert "/tmp" not in repr(properties)
    own = properties.custom(*ALL)
    assert "hunter2" not in repr(own)
    assert "/tmp" in repr(own)


def test_spark_options_carry_them_in_lower_case() -> None:
    options = {key.lower(): value for key, value in REPLAY.items()}
    properties = parse_options({**options, "custom.REPLAY.speed".lower(): "3"})
    assert properties.custom(*ALL).get(SPEED) == 3.0


def test_case_does_not_matter_and_two_values_for_one_key_are_refused() -> None:
    properties = Properties.parse({**REPLAY, "kinesis.custom.Replay.Path": "/other"})
    (problem,) = problems_of(properties)
    assert "mean the same option and differ" in problem


def test_they_travel_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(parse(speed=2))).custom(*ALL).get(SPEED) == 2.0


@pytest.mark.parametrize("publisher", ["POLLING", "efo"])
def test_a_key_that_nothing_reads_is_refused(publisher: str) -> None:
    efo = {"kinesis.stream.efo.consumername": "reports"} if publisher == "efo" else {}
    with pytest.raises(ConfigErrors) as caught:
        Properties.parse({**REPLAY, **efo, "kinesis.stream.recordpublisher": publisher})
    (problem,) = caught.value.problems
    assert isinstance(problem, InvalidOptionError)
    assert f"is {publisher.upper()}, which does not read it" in str(problem)


@pytest.mark.parametrize(
    "other",
    [
        {
            "aws.credentials.provider": "CUSTOM",
            "aws.credentials.provider.custom.class": "vault:Credentials",
        },
        {"kinesis.watermark.assigner": "vault:Placed"},
    ],
)
def test_another_class_may_have_keys_that_the_publisher_does_not_know(other: dict) -> None:
    given = {**REPLAY, **other, "kinesis.custom.vault.url": "https://vault"}
    Properties.parse(given).custom(*ALL)
    assert Properties.parse({**given, "kinesis.stream.recordpublisher": "POLLING"})


@pytest.mark.parametrize(
    "key", ["kinesis.custom.replay.speed", "kinesis.replay.speed", "replay.speed"]
)
def test_a_declaration_is_answered_with_how_it_is_right(key: str) -> None:
    with pytest.raises(PluginLoadError) as caught:
        parse().custom(option(key, Text()))
    assert "is not one of a custom class: declare it with" in str(caught.value)
    assert str(caught.value).endswith("Option(key='custom.replay.speed', ...)")
