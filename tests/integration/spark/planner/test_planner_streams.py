"""Several streams in one source: names and ARNs, and streams that come, go and are deleted."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from attrs import define, field

from kinesis_publishers.errors import DataLossError, KinesisPublishersError, StreamNotFoundError
from tests.integration.spark.planner.planner_harness import Query, QueryOf, eventually, planner

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers_spark.micro_batches import MicroBatches


@define
class Streams:
    """A query whose streams change at a restart."""

    server: LocalKinesis
    kind: str
    streams: str = "one,two"
    tolerant: bool = False
    position: str = "TRIM_HORIZON"
    count: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        for name, shards in (("one", 1), ("two", 3)):
            self.server.create_stream(name, shards)

    def put(self, stream: str, count: int) -> set[bytes]:
        """Put records into a stream; return their payloads, which no two records share."""
        numbers = range(self.count, self.count + count)
        self.count += count
        pairs = [(f"key-{number}", f"{stream} {number}".encode()) for number in numbers]
        self.server.put_many(stream, pairs)
        return {data for _, data in pairs}

    def planner(self) -> MicroBatches:
        more = {"streams": self.streams, "failondataloss": str(not self.tolerant).lower()}
        return planner(self.server, self.position, kind=self.kind, **more)

    def arn(self, stream: str) -> str:
        with closing(self.server.client()) as client:
            summary = client.describe_stream_summary(StreamName=stream)
        arn: str = summary["StreamDescriptionSummary"]["StreamARN"]
        return arn

    def delete(self, stream: str) -> None:
        with closing(self.server.client()) as client:
            client.delete_stream(StreamName=stream)


@pytest.fixture
def streams(server: LocalKinesis, kind: str) -> Streams:
    return Streams(server, kind)


def payloads(query: Query) -> list[bytes]:
    return sorted(data for _, _, data in query.rows)


def test_a_name_and_an_arn_are_read_and_told_apart_in_the_offset(
    streams: Streams, query_of: QueryOf
) -> None:
    streams.streams = f"one,{streams.arn('two')}"
    query = query_of(streams.planner)
    expected = streams.put("one", 20) | streams.put("two", 20)
    query.run_until(40)
    assert payloads(query) == sorted(expected)
    assert set(query.last.streams) == {streams.arn("one"), streams.arn("two")}
    shards = [key.stream_name for key in query.last.shards]
    assert (shards.count("one"), shards.count("two")) == (1, 3)
    # The name may become the ARN, and the other way round: it is the same stream.
    streams.streams = f"{streams.arn('one')},two"
    query.restart()
    expected |= streams.put("one", 5) | streams.put("two", 5)
    query.run_until(50)
    assert payloads(query) == sorted(expected)


def test_a_deleted_stream_fails_the_query_with_its_name(
    streams: Streams, query_of: QueryOf
) -> None:
    query = query_of(streams.planner)
    streams.put("one", 5)
    query.run_until(5)
    streams.delete("two")

    def run_on() -> bool:
        streams.put("one", 1)
        query.run_batch()
        return False

    with pytest.raises(KinesisPublishersError, match=r"\btwo\b") as raised:
        eventually(run_on, "the error")
    assert not isinstance(raised.value, DataLossError)
    assert "ResourceNotFound" in getattr(raised.value, "code", "") or isinstance(
        raised.value, StreamNotFoundError
    )


def test_a_stream_that_is_added_at_a_restart_begins_at_its_own_initial_position(
    streams: Streams, query_of: QueryOf
) -> None:
    streams.streams = "one"
    expected = streams.put("one", 5) | streams.put("two", 5)
    query = query_of(streams.planner)
    query.run_until(5)
    streams.streams = "one,two"
    query.restart()
    query.run_until(10)
    assert payloads(query) == sorted(expected)


def test_a_stream_that_is_added_at_latest_skips_what_it_had(
    streams: Streams, query_of: QueryOf
) -> None:
    streams.streams, streams.position = "one", "LATEST"
    query = query_of(streams.planner)
    query.run_batch()
    streams.put("two", 5)
    streams.streams = "one,two"
    query.restart()
    query.run_batch()
    query.restart()
    expected = streams.put("two", 5) | streams.put("one", 5)
    query.run_until(10)
    assert payloads(query) == sorted(expected)


def test_a_stream_that_is_left_out_at_a_restart_is_reported(
    streams: Streams, query_of: QueryOf, caplog: pytest.LogCaptureFixture
) -> None:
    expected = streams.put("one", 5) | streams.put("two", 5)
    query = query_of(streams.planner)
    query.run_until(10)
    streams.streams = "one"
    query.restart()
    with pytest.raises(DataLossError, match=r"two.*no longer configured.*failondataloss"):
        query.run_batch()
    streams.tolerant = True
    query.restart()
    expected |= streams.put("one", 5)
    later = streams.put("two", 5)
    query.run_until(15)
    assert payloads(query) == sorted(expected)
    said = [one for one in caplog.records if "no longer configured" in one.getMessage()]
    assert len(said) == 1
    # It has been said, so that what is lost later is an error again.
    streams.tolerant = False
    query.restart()
    expected |= streams.put("one", 5)
    query.run_until(20)
    # And where the stream was is known, when it is configured again.
    streams.streams = "one,two"
    query.restart()
    query.run_until(25)
    query.run_to_the_end()
    assert payloads(query) == sorted(expected | later)
