"""Readers that survive from task to task in one process, and what does not survive with them."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import Properties
from kinesis_publishers.errors import PluginLoadError
from kinesis_publishers_spark import workers
from kinesis_publishers_spark.workers import WorkerCache, WorkerReader

if TYPE_CHECKING:
    from collections.abc import Iterator

Readers = WorkerCache[WorkerReader]
NAME = "kinesis-ranges"


def properties_of(stream: str, **more: str) -> Properties:
    return Properties.parse(
        {
            "aws.region": "us-east-1",
            "aws.credentials.provider.basic.accesskeyid": "id",
            "aws.credentials.provider.basic.secretkey": "key",
            "kinesis.streams": stream,
            **more,
        }
    )


def threads() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


@pytest.fixture
def cache() -> Iterator[Readers]:
    before = threads()
    # Not the class: tests replace it.
    cache = WorkerCache(lambda properties: workers.WorkerReader(properties), most=2)
    yield cache
    cache.close()
    assert threads() == before


def test_the_same_properties_get_the_same_reader(cache: Readers) -> None:
    with cache.lend(properties_of("orders")) as one:
        pass
    with cache.lend(properties_of("orders")) as other:
        assert other is one
    with cache.lend(properties_of("payments")) as third:
        assert third is not one


def test_the_ones_that_were_used_last_are_kept(cache: Readers) -> None:
    before = threads()
    readers = {}
    for stream in ("a", "b", "a", "c"):
        with cache.lend(properties_of(stream)) as readers[stream]:
            pass
    assert len(cache) == 2
    assert threads() - before == 2
    with cache.lend(properties_of("a")) as again:
        assert again is readers["a"]
    with cache.lend(properties_of("b")) as again:
        assert again is not readers["b"]


def test_a_reader_in_use_is_not_closed_for_another_one(cache: Readers) -> None:
    with (
        cache.lend(properties_of("a")) as one,
        cache.lend(properties_of("b")),
        cache.lend(properties_of("c")),
    ):
        assert len(cache) == 3
        assert list(one.read(())) == []


def test_a_reader_that_failed_is_not_lent_again(cache: Readers) -> None:
    before = threads()
    with pytest.raises(LookupError), cache.lend(properties_of("a")):
        raise LookupError
    assert len(cache) == 0
    assert threads() == before


def test_a_reader_that_failed_stays_open_for_who_else_uses_it(
    cache: Readers,
) -> None:
    with cache.lend(properties_of("a")) as one:
        with pytest.raises(LookupError), cache.lend(properties_of("a")):
            raise LookupError
        assert list(one.read(())) == []
        with cache.lend(properties_of("a")) as anew:
            assert anew is not one


def test_a_reader_whose_task_was_ended_is_lent_again(cache: Readers) -> None:
    def rows() -> Iterator[int]:
        with cache.lend(properties_of("a")):
            yield 1

    tasks = rows()
    next(tasks)
    tasks.close()  # type: ignore[attr-defined]
    assert len(cache) == 1


def test_a_reader_that_cannot_be_made_leaves_nothing(cache: Readers) -> None:
    before = threads()
    bad = properties_of("a", **{"kinesis.stream.recordpublisher": "no.such.module:Factory"})
    with pytest.raises(PluginLoadError), cache.lend(bad):
        pass
    assert len(cache) == 0
    assert threads() == before


def test_a_task_that_the_garbage_collector_ends_may_give_its_reader_back_at_any_time(
    cache: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Collects(WorkerReader):
        def __init__(self, properties: Properties) -> None:
            gc.collect()
            super().__init__(properties)

    def rows() -> Iterator[int]:
        with cache.lend(properties_of("a")):
            yield 1

    task: list[object] = [rows()]
    task.append(task)
    next(task[0])  # type: ignore[call-overload]
    monkeypatch.setattr(workers, "WorkerReader", Collects)
    del task
    with cache.lend(properties_of("b")), cache.lend(properties_of("c")):
        # The first one was in use until then.
        assert len(cache) == 2


def test_readers_are_made_side_by_side_and_one_of_them_is_kept(
    cache: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=60)
    before = threads()

    class WaitsForTheOther(WorkerReader):
        def __init__(self, properties: Properties) -> None:
            both.wait()
            super().__init__(properties)

    def task() -> None:
        with cache.lend(properties_of("a")) as reader:
            assert list(reader.read(())) == []
            both.wait()

    monkeypatch.setattr(workers, "WorkerReader", WaitsForTheOther)
    tasks = [threading.Thread(target=task) for _ in range(2)]
    for one in tasks:
        one.start()
    for one in tasks:
        one.join()
    assert len(cache) == 1
    assert threads() - before == 1
