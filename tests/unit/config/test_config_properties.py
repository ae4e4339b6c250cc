"""From properties to a configuration: namespaces, families, files, and everything that is wrong."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.config import (
    InitialPositionConfig,
    PollingConfig,
    Properties,
    RegistrationConfig,
)
from kinesis_publishers.config.retries import RECOVERABLE_ERRORS
from kinesis_publishers.config.sections.registration import consumer_arn
from kinesis_publishers.errors import (
    ConfigErrors,
    InvalidOptionError,
    MissingOptionError,
    UnknownOptionError,
)
from kinesis_publishers.model import PositionType

if TYPE_CHECKING:
    from pathlib import Path

_ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/app:1700000000"


def _problems(values: dict, *, complete: bool = False) -> tuple:
    with pytest.raises(ConfigErrors) as caught:
        Properties.parse(values, complete=complete)
    return caught.value.problems


@pytest.mark.parametrize(
    "key", ["kinesis.stream.initpos", "flink.stream.initpos", "FLINK.Stream.InitPos"]
)
def test_both_namespaces_are_accepted_in_any_case(key: str) -> None:
    properties = Properties.parse({key: "trim_horizon"}, complete=False)
    assert properties.get(InitialPositionConfig.position) is PositionType.TRIM_HORIZON
    assert properties.written_key(InitialPositionConfig.position) == key


def test_the_same_key_with_two_values_is_an_error_that_names_both() -> None:
    key = "shard.getrecords.intervalmillis"
    (problem,) = _problems({f"kinesis.{key}": "1s", f"flink.{key}": "2s"})
    assert isinstance(problem, InvalidOptionError)
    assert f"kinesis.{key} ('1s') and flink.{key} ('2s')" in str(problem)


def test_the_same_key_with_one_meaning_is_fine() -> None:
    key = "shard.getrecords.intervalmillis"
    properties = Properties.parse({f"kinesis.{key}": "1s", f"flink.{key}": 1000}, complete=False)
    assert PollingConfig.interval_seconds.read(properties) == 1.0


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("kinesis.stream.initops", "kinesis.stream.initpos"),
        ("flink.shard.getrecords.maxrecordcuont", "flink.shard.getrecords.maxrecordcount"),
        ("aws.regionn", "aws.region"),
        ("aws.credentials.provider.basic.secretkye", "aws.credentials.provider.basic.secretkey"),
        ("kinesi.streams", "kinesis.streams"),
        ("stream.initpos", "kinesis.stream.initpos"),
        ("kinesis.aws.region", "aws.region"),
        ("kinesis.stream.efo.consumeran.orders", "kinesis.stream.efo.consumerarn.<stream>"),
        ("lingermilis", "kinesis.producer.lingermillis"),
        ("kinesis.sink.lingermilis", "kinesis.producer.lingermillis"),
        ("initpos", "kinesis.stream.initpos"),
        ("planner", "kinesis.spark.planner"),
        ("getrecords.maxrecordcuont", "kinesis.shard.getrecords.maxrecordcount"),
        ("sql.ulr", "kinesis.checkpoint.sql.url"),
        ("url", "kinesis.checkpoint.sql.url or kinesis.checkpoint.redis.url"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(key: str, nearest: str) -> None:
    (problem,) = _problems({key: "x"})
    assert isinstance(problem, UnknownOptionError)
    assert str(problem) == f"{key}: unknown option; did you mean {nearest}?"


@pytest.mark.parametrize(
    "key",
    [
        "zzz",
        "kinesis.typo",
        "kinesis.x",
        "kinesis.foo.bar",
        # Not `efo.consumerarn.` with a stream that has the rest of this as its name.
        "kinesis.stream.efo.some.very.long.option.name.that.does.not.exist",
    ],
)
def test_a_key_like_nothing_else_is_still_an_error(key: str) -> None:
    (problem,) = _problems({key: "x"})
    assert "no known option is similar" in str(problem)


def test_a_key_that_is_no_text_is_an_error() -> None:
    (problem,) = _problems({7: "x"})
    assert isinstance(problem, InvalidOptionError)


def test_the_flip_s_other_name_of_registration_is_accepted() -> None:
    properties = Properties.parse({"flink.stream.efo.registrar": "NONE"}, complete=False)
    assert properties.get(RegistrationConfig.strategy).value == "NONE"


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    problems = _problems(
        {
            "kinesi.streamz": "a",
            "flink.stream.initpos": "AT_TIMESTAMP",
            "flink.shard.getrecords.maxrecordcount": "0",
            "kinesis.stream.recordpublisher": "efo",
            "aws.credentials.provider.basic.accesskeyid": "AKIA",
        },
        complete=True,
    )
    found = [(type(problem), str(problem).split(":")[0].split(" ")[0]) for problem in problems]
    assert found == [
        (UnknownOptionError, "kinesi.streamz"),
        (InvalidOptionError, "flink.shard.getrecords.maxrecordcount"),
        (MissingOptionError, "kinesis.streams"),
        (MissingOptionError, "flink.stream.initpos"),
        (MissingOptionError, "kinesis.stream.efo.consumername"),
        (MissingOptionError, "aws.credentials.provider.basic.secretkey"),
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"kinesis.streams": ""},
        {
            "kinesis.streams": "a b",
            "kinesis.stream.recordpublisher": "EFO",
            "kinesis.stream.efo.registration": "NONE",
        },
        {
            "kinesis.streams": "a",
            "kinesis.stream.initpos": "AT_TIMESTAMP",
            "kinesis.stream.initpos.timestamp.format": "QQ",
            "kinesis.stream.initpos.timestamp": "2024",
        },
        {
            "kinesis.streams": "a",
            "kinesis.stream.recordpublisher": "EFO",
            "kinesis.stream.efo.registration": "NONEE",
        },
        {
            "kinesis.streams": "a",
            "aws.credentials.provider": "SYS_PROP",
            "aws.credentials.provider.basic.secretkey": "x",
        },
    ],
)
def test_a_refused_value_is_reported_once_without_what_would_follow_from_it(values: dict) -> None:
    assert len(_problems(values, complete=True)) == 1


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        ("a,,b", "'' is neither"),
        ("a b", "'a b' is neither"),
        ("a,a", "'a' is named twice"),
        ("a,arn:aws:kinesis:eu-west-1:123456789012:stream/a", "'a' is named twice"),
        ("arn:aws:kinesis:eu-west-1:12:stream/a", "neither"),
        ("x" * 129, "neither"),
    ],
)
def test_streams_are_checked(streams: str, message: str) -> None:
    (problem,) = _problems({"kinesis.streams": streams})
    assert message in str(problem)


def test_arns_of_two_regions_are_for_another_server_which_is_asked_in_one() -> None:
    arn = "arn:aws:kinesis:{}:123456789012:stream/{}"
    streams = f"{arn.format('eu-west-1', 'a')},{arn.format('us-east-1', 'b')}"
    (problem,) = _problems({"kinesis.streams": streams})
    assert "eu-west-1, us-east-1" in str(problem)
    local = {"aws.region": "eu-west-1", "aws.endpoint": "http://localhost:4566"}
    Properties.parse({"kinesis.streams": streams, **local})


def test_all_missing_consumer_arns_are_in_one_error() -> None:
    (problem,) = _problems(
        {
            "kinesis.streams": "orders,a.b,arn:aws:kinesis:eu-west-1:123456789012:stream/c",
            "flink.stream.recordpublisher": "EFO",
            "flink.stream.efo.registration": "NONE",
            "flink.stream.efo.consumerarn.orders": _ARN,
        }
    )
    prefix = "kinesis.stream.efo.consumerarn"
    assert f"set {prefix}.a.b, {prefix}.c to" in str(problem)


def test_the_arn_of_a_consumer_on_another_stream_is_an_error() -> None:
    (problem,) = _problems(
        {
            "kinesis.streams": "payments",
            "kinesis.stream.recordpublisher": "EFO",
            "kinesis.stream.efo.registration": "NONE",
            "kinesis.stream.efo.consumerarn.payments": _ARN,
        }
    )
    assert "consumer of another stream" in str(problem)


def test_a_consumer_arn_is_found_although_spark_lower_cased_its_key() -> None:
    arn = _ARN.replace("orders", "Orders")
    properties = Properties.parse({"kinesis.stream.efo.consumerarn.orders": arn}, complete=False)
    assert consumer_arn(properties, "Orders") == arn
    assert consumer_arn(properties, "other") is None


def test_every_recoverable_error_counts() -> None:
    key = "flink.shard.consumer.error.recoverable[{}].exception"
    names = [f"package.Error{index}" for index in range(12)]
    properties = Properties.parse(
        {key.format(2 * index): name for index, name in enumerate(names)}, complete=False
    )
    assert list(properties.members(RECOVERABLE_ERRORS).values()) == names


def test_a_properties_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.properties"
    path.write_text("# a job\nkinesis.streams = a,\\\n  b\nflink.stream.initpos : LATEST\n")
    expected = Properties.parse({"kinesis.streams": "a,b", "kinesis.stream.initpos": "latest"})
    assert Properties.from_file(path) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kinesis.streams=a\nkinesis.streams=b\n", "kinesis.streams is given twice"),
        ("kinesis.streams=\\uXYZW\n", r"job\.properties.*Invalid \\u escape"),
    ],
)
def test_a_properties_file_that_contradicts_its_format_is_an_error(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "job.properties"
    path.write_text(text)
    with pytest.raises(ConfigErrors, match=message):
        Properties.from_file(path)


def test_properties_survive_pickling_and_their_own_dict() -> None:
    properties = Properties.parse(
        {
            "flink.stream.efo.consumerarn.Orders": _ARN.replace("orders", "Orders"),
            "flink.shard.consumer.error.recoverable[0].exception": "builtins.OSError",
            "FLINK.shard.discovery.intervalmillis": "30s",
            "kinesis.streams": "Orders",
            "kinesis.failondataloss": False,
            "aws.credentials.provider": "ASSUME_ROLE",
            "aws.credentials.provider.role.arn": "arn:aws:iam::123456789012:role/r",
            "aws.credentials.provider.role.provider.role.provider.basic.accesskeyid": "AKIA",
        }
    )
    assert pickle.loads(pickle.dumps(properties)) == properties
    assert Properties.parse(properties.to_dict()) == properties
    assert hash(Properties.parse(properties.to_dict())) == hash(properties)
    assert properties != Properties.parse({"kinesis.streams": "Orders"})
