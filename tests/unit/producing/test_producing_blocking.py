"""The producer for threads."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import BlockingProducer
from kinesis_publishers.aggregation import decode_aggregate
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.errors import (
    ClosedError,
    InvalidRecordError,
    RecordsNotWrittenError,
)
from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.producing.producing_support import FIRST, KEYS, STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers.testing.local_kinesis import LocalKinesis


@pytest.fixture
def server(local_kinesis: LocalKinesis) -> LocalKinesis:
    """A stream of two shards."""
    local_kinesis.create_stream(STREAM, 2)
    return local_kinesis


def opened(server: LocalKinesis, **options: Any) -> BlockingProducer:
    keys = {f"kinesis.producer.{key.replace('_', '.')}": one for key, one in options.items()}
    return BlockingProducer.from_properties({**server.properties(STREAM), **keys})


def stored(server: LocalKinesis) -> list[bytes]:
    return [one.data for shard in server.records(STREAM).values() for one in shard]


def _wait_for_line(producer: BlockingProducer) -> None:
    while producer.pending_records < 500:
        threading.Event().wait(0.01)


def test_put_gives_a_future_of_the_place(server: LocalKinesis) -> None:
    with opened(server) as producer:
        result = producer.put("text", KEYS[FIRST]).result(30)
        assert (result.shard_id, result.attempts) == (FIRST, 1)
        assert len(producer.put_many([(b"a", "k"), (b"b", None)]).result(30)) == 2
        producer.flush()
        assert producer.pending_records == 0
    assert sorted(stored(server)) == [b"a", b"b", b"text"]


def test_leaving_delivers_what_was_put(server: LocalKinesis) -> None:
    with opened(server, lingermillis="1h") as producer:
        futures = [producer.put(b"%d" % n) for n in range(700)]
    assert all(one.done() for one in futures)
    assert sorted(stored(server)) == sorted(b"%d" % n for n in range(700))


def test_threads_share_one(server: LocalKinesis) -> None:
    with opened(server, ordering="key", aggregation=True, ratelimit=100_000) as producer:

        def put(thread: int) -> None:
            for n in range(200):
                producer.put(b"%d-%d" % (thread, n), f"{thread}")
            producer.put_many([(b"%d-%d" % (thread, n), f"{thread}") for n in range(200, 400)])
            producer.put(b"%d-400" % thread, f"{thread}").result(30)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(put, range(8)))
        results = producer.put_many(iter([(b"last", "k")])).result(30)
    assert len(results) == 1
    found: dict[bytes, list[int]] = {}
    for data in _unpacked(server):
        if data != b"last":
            thread, _, n = data.partition(b"-")
            found.setdefault(thread, []).append(int(n))
    # What a thread puts keeps its order, single or many.
    assert found == {b"%d" % thread: list(range(401)) for thread in range(8)}


def _unpacked(server: LocalKinesis) -> Iterator[bytes]:
    for data in stored(server):
        if data.startswith(b"\xf3\x89\x9a\xc2"):
            yield from decode_aggregate(data).payloads
        else:
            yield data


def test_put_blocks_while_there_is_no_room(server: LocalKinesis) -> None:
    server.add_fault(Fault("PutRecords", "throttle", times=None))
    putting = threading.Event()
    with opened(server, buffer_maxrecords=10, backoff_max="10ms") as producer:

        def put_all() -> None:
            for n in range(2_000):
                producer.put(b"%d" % n, "k")
            putting.set()

        with ThreadPoolExecutor(1) as threads:
            threads.submit(put_all)
            # The buffer, and the line in front of it that is being taken and the next one.
            _wait_for_line(producer)
            assert not putting.wait(0.5)
            assert producer.pending_records <= 10 + 500
            server.clear_faults()
            assert putting.wait(30)
    assert Counter(map(int, stored(server))) == Counter(range(2_000))


def test_bad_input_is_an_error_here(server: LocalKinesis) -> None:
    with opened(server) as producer:
        with pytest.raises(InvalidRecordError, match="1 to 256"):
            producer.put(b"x", "")
        with pytest.raises(InvalidRecordError, match="must be a UserRecord"):
            producer.put_many([(b"x", "k"), b"y"])  # type: ignore[list-item]
        large = producer.put(bytes(2 * 1024 * 1024), "k")
        assert isinstance(large.exception(30), InvalidRecordError)
        with pytest.raises(RecordsNotWrittenError, match="1 of the records"):
            producer.flush()
    assert stored(server) == [b"x"]


def test_an_iterable_that_fails_leaves_what_it_gave(server: LocalKinesis) -> None:
    def records() -> Iterator[tuple[bytes, str]]:
        for n in range(600):
            yield b"%d" % n, "k"
        raise ZeroDivisionError

    with opened(server, ratelimit=100_000) as producer, pytest.raises(ZeroDivisionError):
        producer.put_many(records())
    assert len(stored(server)) == 500


def test_a_closed_one_says_so(server: LocalKinesis) -> None:
    producer = opened(server)
    producer.close()
    producer.close()
    with pytest.raises(ClosedError, match="is closed"):
        producer.put(b"x")
    with pytest.raises(ClosedError, match="is closed"):
        producer.put_many([(b"x", "k")])
    with pytest.raises(ClosedError, match="is closed"):
        producer.flush()


def test_closing_refuses_those_who_wait_and_names_what_is_left(server: LocalKinesis) -> None:
    server.add_fault(Fault("PutRecords", "throttle", times=None))
    producer = opened(server, buffer_maxrecords=10)
    futures, outcome = [], []

    def put_all() -> None:
        try:
            futures.extend(producer.put(b"%d" % n, "k") for n in range(10_000))
        except ClosedError as error:
            outcome.append(error)

    with ThreadPoolExecutor(1) as threads:
        putting = threads.submit(put_all)
        _wait_for_line(producer)
        with pytest.raises(RecordsNotWrittenError) as raised:
            producer.close(timeout_seconds=0.1)
        putting.result(30)
    assert len(outcome) == 1
    assert all(isinstance(one.exception(0), ClosedError) for one in futures)
    assert f"{len(futures):,} of the records for orders were not written" in str(raised.value)


def test_a_future_cannot_be_cancelled(server: LocalKinesis) -> None:
    with opened(server) as producer:
        future = producer.put(b"x", "k")
        assert not future.cancel()
        assert future.result(30).attempts == 1


def test_a_fork_cannot_use_that_of_its_parent(server: LocalKinesis) -> None:
    with opened(server, lingermillis="1h") as producer:
        producer.put(b"x", "k")
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            try:
                producer.put(b"y", "k")
            except ClosedError as error:
                os.write(write, str(error).encode())
            finally:
                producer.close()
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as said:
            assert b"was opened before this process was forked" in said.read()
        os.waitpid(child, 0)
    assert stored(server) == [b"x"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_end_of_the_interpreter_delivers_what_was_put(server: LocalKinesis, host: str) -> None:
    program = (
        "import json, sys; from kinesis_publishers import BlockingProducer; "
        "producer = BlockingProducer.from_properties(json.loads(sys.argv[1])); "
        "[producer.put(b'%d' % n) for n in range(100)]"
    )
    # A name is resolved in a thread, and threads end, too.
    endpoint = server.endpoint_url.replace("127.0.0.1", host)
    properties = {**server.properties(STREAM), "aws.endpoint": endpoint}
    properties["kinesis.producer.lingermillis"] = "1h"
    subprocess.run([sys.executable, "-c", program, json.dumps(properties)], check=True, timeout=60)
    assert len(stored(server)) == 100


def test_the_end_delivers_what_is_left_after_a_callback_has_tried_to_close(
    server: LocalKinesis,
) -> None:
    program = (
        "import json, sys, threading; from kinesis_publishers import BlockingProducer; "
        "producer = BlockingProducer.from_properties(json.loads(sys.argv[1])); "
        "future = producer.put(b'1'); producer.flush(); "
        "said = threading.Event(); future = producer.put(b'2'); "
        "future.add_done_callback(lambda _: (said.set(), producer.close())); "
        "producer.flush(); said.wait(30); producer.put(b'3')"
    )
    properties = {**server.properties(STREAM), "kinesis.producer.lingermillis": "1h"}
    subprocess.run([sys.executable, "-c", program, json.dumps(properties)], check=True, timeout=60)
    assert sorted(stored(server)) == [b"1", b"2", b"3"]


def test_closing_while_many_are_being_put_leaves_no_future_behind(server: LocalKinesis) -> None:
    is_read, goes_on = threading.Event(), threading.Event()

    def rows() -> Iterator[tuple[bytes, str]]:
        for number in range(500):
            yield b"x", f"{number}"
        is_read.set()
        goes_on.wait(30)

    producer = opened(server)
    with ThreadPoolExecutor(1) as executor:
        putting = executor.submit(producer.put_many, rows())
        assert is_read.wait(30)
        producer.close()
        goes_on.set()
        assert len(putting.result(30).result(30)) == 500


def test_a_callback_may_put_one_and_must_not_wait(server: LocalKinesis) -> None:
    said: list[str] = []
    is_done = threading.Event()

    def again(_: object) -> None:
        for call in (producer.flush, producer.close, lambda: producer.put_many([(b"x", "k")])):
            try:
                call()
            except RuntimeError as error:
                said.append(str(error))
        # More than stand in the line.
        for number in range(600):
            producer.put(b"%d" % number, f"{number}")
        is_done.set()

    with opened(server) as producer:
        producer.put(b"first", "k").add_done_callback(again)
        assert is_done.wait(30)
    assert len(stored(server)) == 601
    assert len(said) == 3
    assert all("called by a callback of a future" in one for one in said)


def test_closing_refuses_what_stands_in_the_line(
    server: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked = threading.Event()

    async def never(*_: object) -> None:
        is_asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(ShardDiscovery, "describe_now", never)
    producer = opened(server)
    too_large = producer.put(bytes(1024 * 1024 + 10), "k")
    assert is_asked.wait(30)
    behind = producer.put(b"small", "k")
    # What waits for a record is referred to by nothing else.
    gc.collect()
    with pytest.raises(RecordsNotWrittenError, match="before the record had a place"):
        producer.close(timeout_seconds=0.1)
    for future in (too_large, behind):
        assert isinstance(future.exception(30), ClosedError)
