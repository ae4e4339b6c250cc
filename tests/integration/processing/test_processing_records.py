"""``for record in records(...)``: each record once, and how the loop ends."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import wait
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import Options, Record, RecordIterator, Shard, read, records, scan
from kinesis_publishers.errors import ClosedError, ConfigError, ConfigErrors
from tests.integration.processing.processing_support import STREAM, Orders, numbers, run_program

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future
    from contextlib import AbstractContextManager


def first(stream: RecordIterator, count: int) -> list[int]:
    """Return the numbers of the next ``count`` records, and ask for no more."""
    return [int(record.data) for _, record in zip(range(count), stream, strict=False)]


def first_of_run(orders: Orders, count: int) -> list[int]:
    with records(orders.properties()) as stream:
        return first(stream, count)


def fail_at(stream: Iterable[Record], number: int) -> None:
    for record in stream:
        if int(record.data) == number:
            raise ZeroDivisionError


def interrupted_by(number: signal.Signals) -> AbstractContextManager[object]:
    """Return the context of a loop that ends with the signal: only after Ctrl-C it raises."""
    return pytest.raises(KeyboardInterrupt) if number is signal.SIGINT else nullcontext()


def is_reading() -> bool:
    return any(one.name == "kinesis-records" for one in threading.enumerate())


def test_a_loop_with_keywords_reads_each_record_once_and_ends_by_break(orders: Orders) -> None:
    expected = orders.put(500)
    connection = orders.server.properties(STREAM)
    options = Options(
        stream=STREAM,
        region=connection["aws.region"],
        endpoint=connection["aws.endpoint"],
        credentials_provider_basic_accesskeyid="a",
        credentials_provider_basic_secretkey="b",
        start="TRIM_HORIZON",
        application="billing",
        checkpoint_sqlite_path=str(orders.path),
    )
    seen: list[Record] = []
    for record in records(**options):
        seen.append(record)
        if len(seen) == 500:
            break
    assert sorted(numbers(seen)) == expected
    for shard in {record.shard_id for record in seen}:
        own = [int(record.sequence_number) for record in seen if record.shard_id == shard]
        assert own == sorted(own)
    # Without `with` the loop was left in the middle of its last record.
    assert not is_reading()
    assert next(records(**options)).data == seen[-1].data


def test_leaving_with_says_that_the_current_record_is_processed(orders: Orders) -> None:
    orders.put(20, key="one shard")
    assert first_of_run(orders, 7) == list(range(7))
    assert first_of_run(orders, 13) == list(range(7, 20))
    assert not is_reading()


def test_after_an_exception_the_next_run_begins_with_its_record(orders: Orders) -> None:
    orders.put(20, key="one shard")
    with pytest.raises(ZeroDivisionError), records(orders.properties()) as stream:
        fail_at(stream, 7)
    with pytest.raises(ZeroDivisionError):
        fail_at(records(orders.properties()), 12)
    assert not is_reading()
    assert first_of_run(orders, 8) == list(range(12, 20))


async def test_it_reads_where_an_event_loop_runs_as_in_a_notebook(orders: Orders) -> None:
    orders.put(20, key="one shard")
    assert first_of_run(orders, 20) == list(range(20))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_ends_the_loop_after_the_current_record(
    orders: Orders, number: signal.Signals
) -> None:
    orders.put(40, key="one shard")
    before = signal.getsignal(number)
    seen: list[int] = []
    with interrupted_by(number):
        for record in records(orders.properties()):
            seen.append(int(record.data))
            if seen[-1] == 7:
                os.kill(os.getpid(), number)
    assert seen[:8] == list(range(8))
    assert not is_reading()
    assert signal.getsignal(number) is before
    assert first_of_run(orders, 40 - len(seen)) == list(range(len(seen), 40))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_ends_a_loop_that_waits(orders: Orders, number: signal.Signals) -> None:
    orders.put(20, key="one shard")
    main = threading.get_ident()
    killer = threading.Timer(0.2, signal.pthread_kill, (main, number))
    with interrupted_by(number):
        for record in records(orders.properties()):
            if int(record.data) == 19:
                killer.start()
    assert not is_reading()


def test_a_signal_that_comes_again_has_its_usual_effect(orders: Orders) -> None:
    def loop() -> None:
        with records(orders.properties()) as stream:
            for record in stream:
                if int(record.data) == 7:
                    os.kill(os.getpid(), signal.SIGINT)
                    os.kill(os.getpid(), signal.SIGINT)

    orders.put(20, key="one shard")
    with pytest.raises(KeyboardInterrupt):
        loop()
    assert first_of_run(orders, 13) == list(range(7, 20))


class Alarm(Exception):
    pass


def on_its_way(stream: RecordIterator) -> Future[Record | None]:
    call = stream._reading.pending  # noqa: SLF001 - nothing else shows that a record was taken
    assert call is not None
    return call


def be_interrupted(stream: RecordIterator) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    next(stream)


def test_a_wait_that_a_handler_of_the_program_interrupts_skips_no_record(orders: Orders) -> None:
    def ring(number: int, frame: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with records(orders.properties()) as stream:
            for _ in range(5):
                with pytest.raises(Alarm):
                    be_interrupted(stream)
            orders.put(20, key="one shard")
            assert first(stream, 20) == list(range(20))
            with pytest.raises(Alarm):
                be_interrupted(stream)
            orders.put(5, key="one shard")
            wait([on_its_way(stream)], timeout=30)
    finally:
        signal.signal(signal.SIGALRM, before)
    # The loop never got the record that had been taken for it.
    assert first_of_run(orders, 1) == [20]


def test_stop_from_another_thread_ends_a_loop_that_waits(orders: Orders) -> None:
    orders.put(5, key="one shard")
    stream = records(orders.properties())
    seen = []
    for record in stream:
        seen.append(int(record.data))
        if seen[-1] == 4:
            threading.Thread(target=stream.stop).start()
    assert seen == list(range(5))
    assert first_of_run(orders, 0) == []
    orders.put(1)
    assert first_of_run(orders, 1) == [5]


def test_records_are_read_once(orders: Orders) -> None:
    orders.put(5, key="one shard")
    with records(orders.properties()) as stream:
        assert first(stream, 2) == [0, 1]
    assert list(stream) == []
    with pytest.raises(ClosedError, match=r"call records\(\) again"), stream:
        pass


def test_what_is_wrong_is_said_in_the_words_of_the_keywords(orders: Orders) -> None:
    with pytest.raises(ConfigErrors) as caught:
        records(start="YESTERDAY", streamx="orders", lease_enabled="perhaps")  # type: ignore[call-arg]
    message = str(caught.value)
    assert "start: got 'YESTERDAY'" in message
    assert "streamx: unknown option; did you mean stream?" in message
    assert "lease_enabled: got 'perhaps'" in message
    assert "stream (kinesis.streams) is required" in message


def test_options_of_spark_are_refused_where_they_would_miss_or_read_too_much_or_said(
    orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    ended = orders.properties(stream_endpos_shards='{"orders": "LATEST"}')
    for reader in (read, records, lambda given: scan(given, print)):
        with pytest.raises(
            ConfigError, match=r"kinesis\.stream\.endpos\.shards is for spark\.read"
        ):
            reader(ended)
    records(orders.properties(spark_maxrecordspertrigger="7"))
    assert "Only Spark reads kinesis.spark.maxrecordspertrigger" in caplog.text


def test_the_end_of_a_shard_is_told_in_a_thread(orders: Orders) -> None:
    orders.put(10, key="one shard")
    orders.server.reshard(STREAM, 1)
    told: list[tuple[Shard, bool]] = []
    main = threading.current_thread()

    def note(shard: Shard) -> None:
        told.append((shard, threading.current_thread() is main))

    with records(orders.properties(), on_shard_end=note) as stream:
        first(stream, 10)
        orders.put(1)
        next(stream)
    assert [was_here for _, was_here in told] == [False, False]


def no_more(shard: Shard) -> None:
    next(iter(()))


async def tell(shard: Shard) -> None:
    pass


@pytest.mark.parametrize(
    ("hook", "error", "message"),
    [
        (no_more, RuntimeError, "raised StopIteration"),
        (lambda shard: tell(shard), TypeError, "which nothing awaits"),
    ],
    ids=["StopIteration", "awaitable"],
)
def test_a_hook_that_fails_ends_the_loop(
    orders: Orders, hook: Any, error: type[Exception], message: str
) -> None:
    orders.put(1, key="one shard")
    orders.server.reshard(STREAM, 1)
    with pytest.raises(error, match=message):
        list(records(orders.properties(), on_shard_end=hook))


def test_a_reader_that_its_own_thread_collects_is_closed(orders: Orders) -> None:
    handled = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(one) for one in handled]
    orders.put(1, key="one shard")
    stream = records(orders.properties())
    next(stream)
    opened = stream._reading._opened  # noqa: SLF001 - as the collector does in that thread
    assert opened is not None
    opened.loop.call(stream.close)
    for one in threading.enumerate():
        if one.name == "kinesis-records":
            one.join(10)
    assert not is_reading()
    # Only the main thread restores the handlers of signals: the next reader does.
    with records(orders.properties()) as again:
        next(again)
    assert [signal.getsignal(one) for one in handled] == before


def test_a_thread_that_reads_on_at_the_end_of_the_program_is_told(orders: Orders) -> None:
    orders.put(1, key="one shard")
    _, said = run_program(f"""
from threading import Event, Thread
from time import sleep
from kinesis_publishers import records

has_begun = Event()

def run():
    for record in records({orders.properties()!r}):
        has_begun.set()

Thread(target=run).start()
has_begun.wait()
sleep(0.5)
""")
    assert "ClosedError: Reading was closed" in said


def test_hooks_that_cannot_be_called_in_a_thread_are_refused(orders: Orders) -> None:
    async def hook(shard: object) -> None:
        pass

    with pytest.raises(TypeError, match="on_shard_lost is an async function"):
        records(orders.properties(), on_shard_lost=hook)  # type: ignore[arg-type]


def test_a_program_that_ends_without_closing_writes_its_progress(orders: Orders) -> None:
    orders.put(20, key="one shard")
    printed = run_program(f"""
from kinesis_publishers import records

stream = records({orders.properties()!r})
for record in stream:
    if record.data == b"7":
        break
""")
    assert printed == ("", "")
    assert first_of_run(orders, 13) == list(range(7, 20))
