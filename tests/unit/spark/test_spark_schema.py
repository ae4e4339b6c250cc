"""The columns of the source, with the additional ones."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from attrs import evolve
from pyspark.sql.pandas.types import to_arrow_schema

from kinesis_publishers import RecordBatch, Shard
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers_spark.schema import (
    ARROW_SCHEMA,
    SPARK_SCHEMA,
    Columns,
    check_schema,
    to_spark_arrow,
)
from tests.unit.spark.spark_builders import ARN, NOON
from tests.unit.spark.spark_schemas import struct_type


def _batch(**columns: Any) -> RecordBatch:
    return RecordBatch(
        shard=Shard(stream_arn=ARN, shard_id="shardId-7"),
        requested_at=NOON,
        payloads=[b"", b"\x00\xff"],
        partition_keys=[None, "ключ"],
        sequence_numbers=["1", "20"],
        arrival_epoch_seconds=[1767268800.0, 1767268800.123],
        **columns,
    )


@pytest.mark.parametrize("include_metadata", [False, True])
def test_the_arrow_schema_is_what_spark_compares_with(include_metadata: bool) -> None:
    schema = struct_type(Columns(metadata=include_metadata).ddl)
    expected = to_arrow_schema(schema, timezone="UTC")
    ours = Columns(metadata=include_metadata).arrow
    # Stricter than Spark, which would accept another order of the metadata.
    assert expected.equals(ours, check_metadata=True)


def test_the_additional_columns_stand_behind_the_others() -> None:
    assert Columns(metadata=False).ddl == SPARK_SCHEMA
    assert Columns(metadata=True).ddl.startswith(SPARK_SCHEMA + ", ")
    assert Columns(metadata=True).arrow.names[: len(ARROW_SCHEMA)] == ARROW_SCHEMA.names


def test_a_record_batch_becomes_rows_of_the_schema() -> None:
    rows = to_spark_arrow(_batch(encryption_types=["KMS", None]))
    assert rows.schema.equals(ARROW_SCHEMA)
    first, second = rows.to_pylist()
    assert (first["data"], first["partitionKey"], first["streamName"]) == (b"", None, "orders")
    assert (second["data"], second["partitionKey"]) == (b"\x00\xff", "ключ")
    assert second["approximateArrivalTimestamp"].microsecond == 123_000


def test_the_additional_columns_of_plain_records() -> None:
    rows = to_spark_arrow(_batch(encryption_types=["KMS", "NONE"]), Columns(metadata=True))
    assert rows.schema.equals(Columns(metadata=True).arrow)
    assert rows.select(ARROW_SCHEMA.names).equals(to_spark_arrow(_batch()))
    assert rows.column("subSequenceNumber").to_pylist() == [None, None]
    assert rows.column("explicitHashKey").to_pylist() == [None, None]
    assert rows.column("encryptionType").to_pylist() == ["KMS", "NONE"]


def test_the_additional_columns_of_records_that_were_inside_an_aggregate() -> None:
    batch = _batch(sub_sequence_numbers=[None, 7], explicit_hash_keys=[None, "42"])
    rows = to_spark_arrow(batch, Columns(metadata=True))
    assert rows.schema.equals(Columns(metadata=True).arrow)
    assert rows.column("subSequenceNumber").to_pylist() == [None, 7]
    assert rows.column("explicitHashKey").to_pylist() == [None, "42"]


@pytest.mark.parametrize("subs", [None, [None, 0]])
@pytest.mark.parametrize("markers", [None, [None, "batch-7/1"]])
def test_a_row_has_the_identity_of_its_record(
    subs: list[int | None] | None, markers: list[str | None] | None
) -> None:
    batch = _batch(sub_sequence_numbers=subs, markers=markers)
    columns = Columns(metadata=True, marker=True)
    rows = to_spark_arrow(batch, columns)
    assert rows.schema.equals(columns.arrow)
    assert rows.column("recordId").to_pylist() == [one.id for one in batch]
    marked = rows.column("batchMarker").to_pylist()
    assert marked == [one.marker or one.id for one in batch]


def test_many_records_are_converted_in_parts_to_the_same_rows() -> None:
    count = 150_000
    batch = evolve(
        _batch(),
        payloads=[b"%d" % number for number in range(count)],
        partition_keys=["key"] * count,
        sequence_numbers=["1"] * count,
        arrival_epoch_seconds=[1767268800.0] * count,
        sub_sequence_numbers=range(count),
        explicit_hash_keys=[None] * count,
    )
    rows = to_spark_arrow(batch, Columns(metadata=True))
    assert rows.column("data").to_pylist() == batch.payloads
    assert rows.column("subSequenceNumber").to_pylist() == list(range(count))


@pytest.mark.parametrize("types", [None, [None, None], ["NONE", None]])
def test_a_record_without_a_type_of_encryption_is_the_same_row_as_one_with_none(
    types: list[str | None] | None,
) -> None:
    rows = to_spark_arrow(_batch(encryption_types=types), Columns(metadata=True))
    assert rows.column("encryptionType").to_pylist() == ["NONE", "NONE"]


def test_when_a_record_was_read_does_not_show_in_its_row() -> None:
    early = to_spark_arrow(_batch(millis_behind_latest=0), Columns(metadata=True))
    late = to_spark_arrow(_batch(millis_behind_latest=9000), Columns(metadata=True))
    assert early.equals(late)


def test_rows_with_the_additional_columns_travel_as_arrow() -> None:
    rows = to_spark_arrow(_batch(), Columns(metadata=True))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, Columns(metadata=True).arrow) as writer:
        writer.write_batch(rows)
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        assert list(reader) == [rows]


@pytest.mark.parametrize("include_metadata", [False, True])
def test_the_own_schema_is_accepted(include_metadata: bool) -> None:
    schema = struct_type(Columns(metadata=include_metadata).ddl)
    check_schema(schema, Columns(metadata=include_metadata))


@pytest.mark.parametrize(
    "ddl",
    [
        "data binary",
        "data string" + SPARK_SCHEMA.removeprefix("data binary"),
        "streamName string, data binary"
        + SPARK_SCHEMA.removeprefix("data binary, streamName string"),
        f"{SPARK_SCHEMA}, extra string",
    ],
    ids=["subset", "other type", "other order", "superset"],
)
def test_any_other_schema_is_refused_with_the_columns_that_there_are(ddl: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        check_schema(struct_type(ddl), Columns(metadata=False))
    message = str(caught.value)
    # As Spark shows a type.
    columns = SPARK_SCHEMA.replace("timestamp_ltz", "timestamp")
    assert f"fixed: {columns} (and subSequenceNumber" in message
    assert ddl.replace("timestamp_ltz", "timestamp") in message
    assert "use select(...)" in message


def test_a_column_that_must_not_be_null_is_refused() -> None:
    schema = struct_type(SPARK_SCHEMA)
    schema["data"].nullable = False
    with pytest.raises(InvalidOptionError, match="data binary not null"):
        check_schema(schema, Columns(metadata=False))
