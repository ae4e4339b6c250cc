"""The sink: which rows it takes, what becomes of them, and what tasks leave behind."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from kinesis_publishers.errors import (
    AccessDeniedError,
    ConfigError,
    InvalidRecordError,
    RecordsNotWrittenError,
    StreamNotFoundError,
)
from kinesis_publishers.formats import decoder_of
from kinesis_publishers.testing.local_kinesis import Fault
from kinesis_publishers_spark.data_source import KinesisDataSource
from kinesis_publishers_spark.sink import PRODUCERS, Markers, Sink
from tests.stored import user_records
from tests.unit.spark.spark_schemas import struct_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

ROWS = "data string, partitionKey string"


@pytest.fixture(autouse=True)
def _no_producer_is_left() -> Iterator[None]:
    yield
    PRODUCERS.close()
    assert threads() == 0


def threads() -> int:
    return sum(thread.name == "kinesis-producer" for thread in threading.enumerate())


@pytest.fixture
def server(local_kinesis: LocalKinesis) -> LocalKinesis:
    local_kinesis.create_stream("orders", 2)
    local_kinesis.create_stream("payments")
    return local_kinesis


def sink_of(
    server: LocalKinesis, ddl: str = ROWS, *, stream: str | None = "orders", **options: str
) -> Sink:
    """Return the sink of a query, as Spark gets it and sends it to the tasks."""
    given = {"kinesis.producer.lingermillis": "10", **server.properties("orders"), **options}
    given = {name.replace("__", "."): value for name, value in given.items()}
    given.pop("kinesis.streams")
    if stream is not None:
        given["streamname"] = stream
    source = KinesisDataSource(given | {"checkpointlocation": "x"})
    writer = source.streamWriter(struct_type(ddl), overwrite=False)
    sink: Sink = pickle.loads(pickle.dumps(writer)).sink
    return sink


def batch_of(ddl: str, *rows: tuple[Any, ...]) -> pa.RecordBatch:
    kinds = {"string": pa.string(), "binary": pa.binary()}
    fields = [column.split(" ") for column in ddl.split(", ")]
    schema = pa.schema([(name, kinds[kind]) for name, kind in fields])
    values = list(zip(*rows, strict=True)) if rows else [[] for _ in fields]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(values, schema, strict=True)],
        schema=schema,
    )


def write(sink: Sink, ddl: str, *rows: tuple[Any, ...], batch: str | None = None) -> int:
    return sink.write(iter([batch_of(ddl, *rows)]), batch).rows


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_the_column_data_is_compressed_on_request(server: LocalKinesis, compression: str) -> None:
    sink = sink_of(server, compression=compression, includebatchmarker="true")
    write(sink, ROWS, ("one", "a"), ("two", "a"), batch="q/0/0")
    decode = decoder_of(compression)
    assert decode is not None
    found = user_records(server, "orders")
    assert sorted(decode(one.data) for one in found) == [b"one", b"two"]
    assert all(one.marker for one in found)


def test_an_unknown_compression_is_refused_at_the_start(server: LocalKinesis) -> None:
    with pytest.raises(ConfigError, match=r"compression.*gzip or zstd"):
        sink_of(server, compression="lz4")


def test_rows_become_records(server: LocalKinesis) -> None:
    ddl = "explicitHashKey string, partitionKey string, data binary"
    sink = sink_of(server, ddl)
    assert write(sink, ddl, (None, "a", b"one"), (str(2**127), "b", b"\xff"), (None, "c", b"")) == 3
    records = user_records(server, "orders")
    assert sorted((one.partition_key, one.data) for one in records) == [
        ("a", b"one"),
        ("b", b"\xff"),
        ("c", b""),
    ]
    (second,) = [one for one in records if one.partition_key == "b"]
    assert second.shard_id == "shardId-000000000001"


@pytest.mark.parametrize("is_auto", [False, True])
@pytest.mark.parametrize("given", ["data string", "DATA string, partitionkey string"])
def test_a_row_without_a_partition_key_has_a_random_one_where_keys_choose_shards(
    server: LocalKinesis, given: str, is_auto: bool
) -> None:
    server.distribute("orders", is_auto=is_auto)
    rows = [("über", None)[: given.count(",") + 1]] * 20
    assert write(sink_of(server, given), given, *rows) == 20
    records = user_records(server, "orders")
    assert {one.data for one in records} == {"über".encode()}
    keys = {one.partition_key for one in records}
    assert keys == {None} if is_auto else len(keys) == 20


def test_a_hash_key_does_not_need_a_partition_key(server: LocalKinesis) -> None:
    ddl = "data string, explicitHashKey string"
    write(sink_of(server, ddl), ddl, ("x", str(2**127)))
    assert [one.shard_id for one in user_records(server, "orders")] == ["shardId-000000000001"]


def test_no_rows_are_no_records_and_no_call(server: LocalKinesis) -> None:
    sink = sink_of(server)
    assert sink.write(iter([]), None).rows == 0
    assert write(sink, ROWS) == 0
    assert user_records(server, "orders") == []


ROUTED = "streamName string, data string, partitionKey string"


@pytest.mark.parametrize("stream", [None, "orders,payments", "payments"])
def test_a_column_names_the_streams(server: LocalKinesis, stream: str | None) -> None:
    sink = sink_of(server, ROUTED, stream=stream)
    write(sink, ROUTED, ("payments", "one", "a"), ("payments", "two", "a"))
    if stream != "payments":
        write(sink, ROUTED, ("orders", "x", "a"), ("payments", "three", "a"), ("orders", "y", "a"))
        assert [one.data for one in user_records(server, "orders")] == [b"x", b"y"]
        assert [one.data for one in user_records(server, "payments")] == [b"one", b"two", b"three"]
    else:
        # Where there is none the option says it.
        write(sink, ROUTED, (None, "three", "a"))
        assert [one.data for one in user_records(server, "payments")] == [b"one", b"two", b"three"]


def test_a_column_may_have_arns(server: LocalKinesis) -> None:
    summary = server.run(server.control_plane().describe_stream("payments"))
    write(sink_of(server, ROUTED, stream=None), ROUTED, (summary.identity.arn, "x", "a"))
    assert [one.data for one in user_records(server, "payments")] == [b"x"]


@pytest.mark.parametrize(
    ("stream", "named", "said"),
    [
        (None, None, "has the streamName None, and kinesis.streams names no stream"),
        ("orders,payments", None, "streamName None, and kinesis.streams names orders, payments"),
        ("orders,payments", "bills", "the partitionKey 'a' has the streamName 'bills', and"),
        (None, "no such name", "'no such name'"),
    ],
)
def test_a_row_without_a_stream_is_refused(
    server: LocalKinesis, stream: str | None, named: str | None, said: str
) -> None:
    with pytest.raises((InvalidRecordError, ConfigError)) as raised:
        write(sink_of(server, ROUTED, stream=stream), ROUTED, (named, "x", "a"))
    assert said in str(raised.value)


def test_a_null_is_an_error_that_names_the_key(server: LocalKinesis) -> None:
    with pytest.raises(InvalidRecordError) as raised:
        write(sink_of(server), ROWS, ("one", "a"), (None, "b"), (None, "c"))
    assert str(raised.value) == (
        "the column data is null in the row with the partitionKey 'b': filter such rows out, or "
        "write an empty payload with coalesce(data, '')"
    )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("x" * (1024 * 1024 + 1), "large"), "the partition key 'large' has 1,048,582 bytes"),
        (("x", ""), "a partition key must have 1 to 256 characters, not 0"),
        (("x", "k" * 257), "not 257: 'kkk"),
    ],
)
def test_what_is_no_record_is_an_error_that_names_the_key(
    server: LocalKinesis, row: tuple[str, str], said: str
) -> None:
    with pytest.raises(InvalidRecordError, match=said):
        write(sink_of(server), ROWS, ("before", "a"), row)


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("data long", "the column data is of type bigint, and must be binary or string: cast it"),
        ("data string, partitionKey long", "partitionKey is of type bigint, and must be string"),
        ("partitionKey string", "the column data is missing: the sink writes the columns data"),
        ("data string, DATA string", "the column data occurs twice"),
        (
            "data string, partition_key string",
            "the column partition_key is not one that the sink writes",
        ),
    ],
)
def test_wrong_columns_are_an_error_at_the_start(server: LocalKinesis, ddl: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        sink_of(server, ddl)


def test_no_columns_are_an_error_at_the_start() -> None:
    source = KinesisDataSource({"streamname": "orders", "region": "eu-west-1"})
    with pytest.raises(ConfigError, match="the column data is missing"):
        source.writer(StructType(), overwrite=False)


def test_records_do_not_wait_on_disk_because_tasks_are_repeated(
    server: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINESIS_PUBLISHERS_ALLOW", "/tmp")
    with pytest.raises(ConfigError, match=r"kinesis\.producer\.spill\.path is for a producer"):
        sink_of(server, "data string", kinesis__producer__spill__path="/tmp")


@pytest.mark.parametrize(("stream", "said"), [(None, "is missing"), ("a,b", "names a, b")])
def test_a_stream_that_nothing_chooses_is_an_error_at_the_start(
    stream: str | None, said: str, server: LocalKinesis
) -> None:
    with pytest.raises(ConfigError, match=rf"streamName \(kinesis\.streams\) {said}: name one"):
        sink_of(server, stream=stream)


def test_a_stream_is_not_overuser_records(server: LocalKinesis) -> None:
    source = KinesisDataSource(server.properties("orders"))
    with pytest.raises(ConfigError, match=r"cannot be overwritten: use mode\('append'\)"):
        source.writer(struct_type(ROWS), overwrite=True)
    # The output mode complete.
    source.streamWriter(struct_type(ROWS), overwrite=True)


def test_a_stream_that_does_not_exist_is_an_error_at_the_start(server: LocalKinesis) -> None:
    with pytest.raises(StreamNotFoundError, match="bills"):
        sink_of(server, stream="bills")


def test_the_stream_is_checked_once_in_a_process(server: LocalKinesis) -> None:
    for _ in range(3):
        sink_of(server, kinesis__producer__lingermillis="11")
    assert [call.operation for call in server.calls()] == ["DescribeStreamSummary"]


def test_a_missing_permission_is_an_error_that_names_the_action(server: LocalKinesis) -> None:
    server.add_fault(Fault("PutRecords", "error", code="AccessDeniedException"))
    with pytest.raises(RecordsNotWrittenError, match=r"allow kinesis:PutRecords") as raised:
        write(sink_of(server), ROWS, ("x", "a"))
    assert isinstance(raised.value.__cause__, AccessDeniedError)


def test_a_producer_serves_the_tasks_of_a_process_until_one_fails(server: LocalKinesis) -> None:
    sink = sink_of(server)
    for number in range(3):
        write(sink, ROWS, (f"{number}", "a"))
        assert len(PRODUCERS) == threads() == 1
    with pytest.raises(InvalidRecordError):
        write(sink, ROWS, ("x", ""))
    assert len(PRODUCERS) == 0
    assert threads() == 0
    write(sink, ROWS, ("3", "a"))
    assert [one.data for one in user_records(server, "orders")] == [b"0", b"1", b"2", b"3"]


def test_a_failed_task_does_not_wait_for_what_it_has_put(server: LocalKinesis) -> None:
    # For its time to live, minutes.
    server.add_fault(Fault("PutRecords", "throttle", times=1000))
    rows = [("x", f"{number}") for number in range(100)]
    with pytest.raises(InvalidRecordError):
        write(sink_of(server), ROWS, *rows, ("x", ""))


def test_the_marker_is_that_of_the_content(server: LocalKinesis) -> None:
    sink = sink_of(server, includebatchmarker="true")
    rows = [("one", "a"), ("two", "a"), ("one", "a"), ("one", None), ("two", "b")]
    for batch in ("q/0/1", "q/0/1", "q/0/2"):
        rows.reverse()
        write(sink, ROWS, *rows, batch=batch)
    markers = [one.marker for one in user_records(server, "orders")]
    assert len(markers) == 15
    # The second time each is the same, although the rows come in another order.
    assert len(set(markers)) == 10
    assert all(marker is not None for marker in markers)
    assert {str(marker).rpartition("/")[0] for marker in markers} == {"q/0/1", "q/0/2"}


def test_equal_contents_are_those_with_equal_streams_keys_and_payloads() -> None:
    def markers(*rows: tuple[str | None, bytes, str | None, str | None]) -> list[str]:
        own = Markers("q/0/0")
        return [
            marker for stream, *row in rows for marker in own.of(stream, *([part] for part in row))
        ]

    different = [
        (None, b"x", "a", None),
        (None, b"", "a", None),
        (None, b"x", "b", None),
        (None, b"x", None, None),
        (None, b"x", "a", "1"),
        ("s", b"x", "a", None),
        (None, b"x'", "a", None),
        (None, b"x", "a'", None),
        (None, b"x", "\N{SNOWMAN}", None),
    ]
    found = markers(*different, different[0], different[0])
    assert found[-2:] == [f"{found[0]}.1", f"{found[0]}.2"]
    assert len(set(found)) == len(found)
    # So that a replay after an update of Python is recognized.
    assert found[0] == "q/0/0/AtZFITbhCDarBlDD"


def test_marked_records_share_aggregates_unless_that_is_refused(server: LocalKinesis) -> None:
    rows = [(f"{number}", "a") for number in range(50)]
    write(sink_of(server, includebatchmarker="true"), ROWS, *rows, batch="q/0/0")
    assert len({one.sequence_number for one in user_records(server, "orders")}) == 1
    alone = sink_of(server, includebatchmarker="true", kinesis__producer__aggregation="false")
    write(alone, ROWS, *rows, batch="q/1/0")
    assert len({one.sequence_number for one in user_records(server, "orders")}) == 51
