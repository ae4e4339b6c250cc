"""What is refused when the data source is constructed, before a query starts."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from kinesis_publishers import Properties
from kinesis_publishers.config import RegistrationConfig
from kinesis_publishers.errors import (
    ConfigError,
    ConfigErrors,
    InvalidOptionError,
    MissingOptionError,
    PluginLoadError,
)
from kinesis_publishers_spark import KinesisDataSource
from kinesis_publishers_spark.aliases import parse_options
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.schema import SPARK_SCHEMA, Columns
from kinesis_publishers_spark.stream_reader import KinesisStreamReader
from tests.unit.spark.spark_builders import (
    after,
    offset,
    shard,
    starts_no_thread,
    tasks_between,
)
from tests.unit.spark.spark_schemas import struct_type

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

# As Spark hands them over: keys in lower case, values as text.
OPTIONS = {"streamname": "orders", "region": "eu-west-1"}


def region_in_task(reader: KinesisStreamReader) -> str:
    start, end = (offset({shard(0): after(number)}) for number in (3, 9))
    (task,) = tasks_between(reader, start, end)
    return task.properties.to_dict()["aws.region"]


def test_the_options_of_a_minimal_query_are_accepted() -> None:
    assert KinesisDataSource(OPTIONS).name() == "kinesis"


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(ConfigErrors) as raised:
        KinesisDataSource(
            {
                "region": "eu-west-1",
                "kinesis.shard.getrecords.maxrecordcount": "0",
                "kinesis.stream.initposition": "LATEST",
                "maxrecordspertrigger": "many",
            }
        )
    message = str(raised.value)
    assert message.startswith("4 configuration problems:")
    for key in ("kinesis.streams", "maxrecordcount", "kinesis.stream.initposition", "many"):
        assert key in message


def test_a_dead_letter_for_aggregates_is_refused_at_load() -> None:
    with pytest.raises(InvalidOptionError, match=r"aggregation\.on-invalid is dead-letter"):
        KinesisDataSource(OPTIONS | {"kinesis.aggregation.on-invalid": "dead-letter"})


def test_both_planners_and_the_additional_columns_are_available(
    local_kinesis: LocalKinesis,
) -> None:
    local_kinesis.create_stream("orders")
    options = {"kinesis.spark.planner": "ranges", "includemetadata": "true"}
    source = KinesisDataSource(local_kinesis.properties("orders") | options)
    assert source.schema() == Columns(metadata=True).ddl


def test_the_schema_that_spark_gives_back_is_accepted() -> None:
    source = KinesisDataSource(OPTIONS)
    assert isinstance(source.streamReader(struct_type(SPARK_SCHEMA)), KinesisStreamReader)


@pytest.mark.parametrize(
    "schema",
    [
        struct_type("data string, streamName string"),
        struct_type(Columns(metadata=True).ddl),
        StructType([StructField("data", BinaryType(), nullable=False)]),
    ],
)
def test_another_schema_fails_where_spark_shows_the_reason(schema: StructType) -> None:
    # An error from streamReader() itself would be hidden behind one of Spark's own.
    reader = KinesisDataSource(OPTIONS).streamReader(schema)
    offset = Offset().to_json()
    for call in (
        reader.initialOffset,
        reader.latestOffset,
        lambda: reader.latestOffset(offset),
        lambda: reader.partitions(offset, offset),
    ):
        with pytest.raises(InvalidOptionError, match="columns of this source are fixed: data bin"):
            call()
    reader.stop()


def test_another_schema_fails_in_a_batch_read() -> None:
    with pytest.raises(InvalidOptionError, match=r"and subSequenceNumber bigint.*includeMetadata"):
        KinesisDataSource(OPTIONS).reader(struct_type("data string"))


def test_a_batch_is_refused_in_the_words_that_the_user_wrote() -> None:
    source = KinesisDataSource(OPTIONS | {"startingposition": "latest"})
    with pytest.raises(ConfigErrors, match="startingposition = LATEST begins after the last"):
        source.reader(struct_type(SPARK_SCHEMA))
    source = KinesisDataSource(OPTIONS | {"endingtimestamp": "2026-01-01T00:00Z"})
    with pytest.raises(ConfigErrors, match=r"endingtimestamp is for spark\.read"):
        source.streamReader(struct_type(SPARK_SCHEMA)).initialOffset()


def test_the_instant_of_load_is_the_same_in_every_process() -> None:
    source = KinesisDataSource(OPTIONS)
    loaded = pickle.loads(cloudpickle.dumps(source))
    assert (loaded._loaded_at, loaded.options) == (source._loaded_at, OPTIONS)


@pytest.mark.parametrize(
    "options",
    [
        {"consumermode": "efo"},
        {"consumertype": "SubscribeToShard"},
        {"kinesis.stream.recordpublisher": "efo"},
    ],
)
def test_enhanced_fan_out_needs_a_consumer_name_and_nothing_else(options: dict[str, str]) -> None:
    KinesisDataSource(OPTIONS | options | {"consumername": "app"})
    with pytest.raises(ConfigError, match=r"consumername is required for EFO"):
        KinesisDataSource(OPTIONS | options)


def test_the_arns_of_consumers_match_streams_in_any_case() -> None:
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/Orders.Of-Today/consumer/app:1"
    options = {
        "streamname": "Orders.Of-Today",
        "region": "eu-west-1",
        "consumermode": "efo",
        "kinesis.stream.efo.registration": "NONE",
        "kinesis.stream.efo.consumerarn.orders.of-today": arn,
    }
    reader = KinesisDataSource(options).streamReader(StructType())
    config = RegistrationConfig.from_properties(reader._properties)
    assert config.consumer_arns == {"Orders.Of-Today": arn}


def test_every_arn_that_none_misses_is_named() -> None:
    options = {
        "streams": "one,two",
        "region": "eu-west-1",
        "consumermode": "efo",
        "kinesis.stream.efo.registration": "NONE",
    }
    with pytest.raises(ConfigError, match=r"consumerarn\.one.*consumerarn\.two"):
        KinesisDataSource(options)


def test_a_publisher_that_cannot_be_loaded_is_found_before_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KINESIS_PUBLISHERS_ALLOW", "other.*, no_such_module:*")
    with pytest.raises(PluginLoadError, match="no_such_module"):
        KinesisDataSource(OPTIONS | {"kinesis.stream.recordpublisher": "no_such_module:Factory"})


def test_an_option_does_not_load_a_class_that_is_not_permitted() -> None:
    with pytest.raises(ConfigErrors, match="KINESIS_PUBLISHERS_ALLOW in the driver's environment"):
        KinesisDataSource(OPTIONS | {"kinesis.stream.recordpublisher": "no_such_module:Factory"})


def test_secrets_are_not_in_the_message() -> None:
    with pytest.raises(ConfigErrors) as raised:
        KinesisDataSource(
            OPTIONS
            | {"aws.credentials.provider.basic.secretkey": "hidden", "kinesis.unknown": "hidden2"}
        )
    assert "hidden" not in str(raised.value).replace("hidden2", "")


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
@pytest.mark.parametrize("kind", ["reader", "streamReader"])
def test_what_travels_to_tasks_with_the_partitions_has_no_secret(
    dumps: Callable[[Any], bytes], kind: str
) -> None:
    basic = "aws.credentials.provider.basic"
    secret = {f"{basic}.accesskeyid": "Secret#1", f"{basic}.secretkey": "Secret#2"}
    source = pickle.loads(dumps(KinesisDataSource({**OPTIONS, **secret})))
    reader = getattr(source, kind)(struct_type(SPARK_SCHEMA))
    # The function that Spark sends has both.
    travels = dumps((source, reader))
    assert b"Secret" not in travels
    assert pickle.loads(travels)[0].name() == "kinesis"


def test_a_source_that_refuses_to_read_sends_no_secret_either() -> None:
    secret = {"aws.credentials.provider.basic.secretkey": "Secret"} | {
        "aws.credentials.provider.basic.accesskeyid": "Secret"
    }
    source = KinesisDataSource(OPTIONS | secret)
    assert b"Secret" not in pickle.dumps((source.streamReader(StructType()), source))


def test_the_options_of_spark_and_the_properties_mean_the_same() -> None:
    options = OPTIONS | {"startingposition": "TRIM_HORIZON", "maxbytespertrigger": "1MiB"}
    properties = {
        "kinesis.streams": "orders",
        "aws.region": "eu-west-1",
        "kinesis.stream.initpos": "TRIM_HORIZON",
        "kinesis.spark.maxbytespertrigger": "1MiB",
    }
    assert parse_options(options) == Properties.parse(properties)
    KinesisDataSource(properties)


def test_constructing_starts_nothing() -> None:
    with starts_no_thread():
        KinesisDataSource(OPTIONS).streamReader(StructType())


def test_a_missing_region_is_said_before_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(MissingOptionError, match=r"no region: set aws\.region"):
        KinesisDataSource({"streams": "orders"})


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_of_this_machine_travels_to_the_tasks(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "eu-central-1")
    source = KinesisDataSource({"streams": "orders"})
    monkeypatch.delenv(name)
    reader = pickle.loads(pickle.dumps(source)).streamReader(StructType())
    assert region_in_task(reader) == "eu-central-1"


def test_the_settings_of_this_machine_matter_only_where_no_region_is_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    KinesisDataSource(OPTIONS)
    with pytest.raises(ConfigError, match=r"configuration of this machine.*nobody"):
        KinesisDataSource({"streams": "orders"})


def test_the_provider_profile_names_its_own_region(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[default]\nregion = us-east-1\n[profile prod]\nregion = eu-central-1\n", encoding="utf-8"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    options = {
        "streams": "orders",
        "aws.credentials.provider": "PROFILE",
        "aws.credentials.provider.profile.name": "prod",
    }
    reader = KinesisDataSource(options).streamReader(StructType())
    assert region_in_task(reader) == "eu-central-1"
