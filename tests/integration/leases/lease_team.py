"""The workers of an application as processes, what they have done, and what they read."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import closing, contextmanager
from hashlib import md5
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import psutil
from attrs import define, field, frozen

from kinesis_publishers import Properties
from kinesis_publishers.assembly import open_checkpoint_store
from kinesis_publishers.checkpoints.kcl_table import KclLeaseTable
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.model import StreamIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kinesis_publishers.model import Lease, StoredCheckpoint
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.servers import Server

STREAM: Final = "orders"
_PROGRAM: Final = Path(__file__).with_name("lease_worker.py")
_DEADLINE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.02

RecordKey: TypeAlias = tuple[str, int]


@frozen
class Entry:
    """One line of a worker's file.

    Attributes:
        at: on the monotonic clock of this machine.
    """

    at: float
    worker: str
    what: str
    shard_id: str
    detail: str

    @property
    def record(self) -> RecordKey:
        return self.shard_id, int(self.detail)


@define(eq=False)
class Worker:
    """One process; a name that is started again is another one.

    Attributes:
        longest_gap: the time between two looks at the leases in which all of them are renewed.
        was_killed_at: when it was sent a SIGKILL.
        pauses: when it was stopped, and when it went on.
    """

    name: str
    process: subprocess.Popen[bytes]
    path: Path
    longest_gap: float
    was_killed_at: float | None = None
    pauses: list[tuple[float, float]] = field(factory=list)
    is_expected_to_end: bool = False
    _entries: list[Entry] = field(factory=list, init=False)
    _read_bytes: int = field(default=0, init=False)

    @property
    def entries(self) -> list[Entry]:
        with self.path.open("rb") as file:
            file.seek(self._read_bytes)
            lines = file.read().split(b"\n")[:-1]
        for line in lines:
            self._read_bytes += len(line) + 1
            at, what, shard_id, detail = line.decode().split(" ", 3)
            self._entries.append(Entry(float(at), self.name, what, shard_id, detail))
        return self._entries

    @property
    def errors(self) -> str:
        """The end of what it has logged."""
        return self.path.with_suffix(".log").read_text(errors="replace")[-6000:]

    def count(self, what: str) -> int:
        return sum(one.what == what for one in self.entries)

    def kill(self) -> float:
        """Kill it; return when."""
        self.is_expected_to_end = True
        self.was_killed_at = time.monotonic()
        self.process.kill()
        self.process.wait()
        return self.was_killed_at

    def terminate(self) -> float:
        """Ask it to end; return when."""
        self.is_expected_to_end = True
        now = time.monotonic()
        self.process.terminate()
        return now

    def stop(self) -> None:
        """Ask it to end, and wait until it has ended well."""
        if not self.is_expected_to_end:
            self.terminate()
        code = self.process.wait(_DEADLINE_SECONDS)
        assert code == 0, self.errors

    def pause(self) -> None:
        self.pauses.append((time.monotonic(), float("inf")))
        self.process.send_signal(signal.SIGSTOP)
        process = psutil.Process(self.process.pid)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "a stopped process")

    def resume(self) -> float:
        """Let it go on; return when."""
        began_at, _ = self.pauses.pop()
        now = time.monotonic()
        self.pauses.append((began_at, now))
        self.process.send_signal(signal.SIGCONT)
        return now

    def handed_out_after(self, entry: Entry) -> float:
        """Return the last moment before it was handed a record that the history tells.

        That is when it began the batch of the record, if it takes batches, or else the record
        before.
        """
        since, kinds = entry.at, {"batch", "LeaseTaken", "record"}
        for one in self._entries:
            if one is entry:
                break
            if one.shard_id == entry.shard_id and one.what in kinds:
                since = one.at
                if one.what == "batch":
                    kinds = {"batch"}
        return since

    def was_out_between(self, first: float, last: float) -> bool:
        """Say whether it was killed or stood still at some time, or waited long for a processor."""
        # What it was seen to do after that, it has done before the signal came.
        was_killed = self.was_killed_at is not None and self.was_killed_at <= last
        looks = itertools.pairwise(one.at for one in self._entries if one.what == "look")
        gaps = [(begin, end) for begin, end in looks if end - begin > self.longest_gap]
        return was_killed or any(
            begin <= last and end >= first for begin, end in (*self.pauses, *gaps)
        )


@frozen
class SharedStore:
    """The store that all workers use.

    Attributes:
        server: what runs it; sqlite has none.
    """

    properties: Mapping[str, str]
    server: Server | None

    @contextmanager
    def away(self) -> Iterator[None]:
        """Let nobody read or write it while the context lasts."""
        if self.server is not None:
            self.server.kill()
            yield
            self.server.start()
            return
        with self.unlocked():
            yield

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Let Redis take no writes while the context lasts, as the former primary of a failover."""
        assert self.server is not None
        self.server.execute("REPLICAOF 127.0.0.1 9")
        yield
        self.server.execute("REPLICAOF NO ONE")

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        """See to it that no worker has a lock that all others wait for, while the context lasts."""
        if self.server is not None:
            yield  # It locks single rows.
            return
        path = self.properties["kinesis.checkpoint.sqlite.path"]
        with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield
            connection.execute("ROLLBACK")


@define(eq=False)
class Team:
    """Starts workers, and knows what the stream, the store and their files have."""

    server: LocalKinesis
    store: SharedStore
    properties: Mapping[str, str]
    directory: Path
    workers: list[Worker] = field(factory=list, init=False)

    def close(self) -> None:
        """End every process, in any state."""
        for worker in self.workers:
            worker.process.kill()
            # Waits for its end, and closes its standard input.
            worker.process.communicate()

    def stop(self) -> None:
        """Stop the workers that still run, and check that nothing has gone wrong in any."""
        running = [one for one in self.workers if not one.is_expected_to_end]
        for worker in running:
            worker.terminate()
        for worker in running:
            worker.stop()

    def end_with_all_read(self) -> None:
        """Stop everything once all is read, and check who has read what, and in which order."""
        self.wait_until_all_is_read()
        self.stop()
        self.assert_history()

    def pause(self, worker: Worker) -> None:
        """Let a worker stand still, but not with the lock of sqlite: then all others would, too."""
        with self.store.unlocked():
            worker.pause()

    def failed(self) -> list[Worker]:
        """Return the workers that have ended by themselves."""
        return [
            one
            for one in self.workers
            if one.process.poll() is not None and not one.is_expected_to_end
        ]

    def start(self, *names: str, how: str = "read") -> list[Worker]:
        return [self._start(name, how) for name in names]

    def _start(self, name: str, how: str) -> Worker:
        path = self.directory / f"{name}.{len(self.workers)}"
        path.touch()
        arguments = [name, how, str(path), json.dumps(self.properties)]
        with path.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), *arguments], stdin=subprocess.PIPE, stderr=log
            )
        failover_seconds = int(self.properties["kinesis.lease.failovermillis"]) / 1000
        worker = Worker(name, process, path, failover_seconds / 2)
        self.workers.append(worker)
        return worker

    def wait_until(self, is_true: Callable[[], object], what: str) -> float:
        """Wait for what the workers bring about; return when it was seen."""

        def look() -> bool:
            for worker in self.failed():
                raise AssertionError(worker.errors)
            return bool(is_true())

        return wait_until(look, what)

    # What is in the stream, in the files of the workers, and in the store.

    def put(self, *texts: str, key: str = "a key") -> list[RecordKey]:
        stored = self.server.put_many(STREAM, [(key, text.encode()) for text in texts])
        return [(shard_id, int(number)) for shard_id, number in stored]

    def stored(self) -> list[RecordKey]:
        """Return all records of the stream, by shard in their order."""
        shards = self.server.records(STREAM)
        return [
            (shard_id, int(one.sequence_number))
            for shard_id, records in shards.items()
            for one in records
        ]

    def entries(self, *kinds: str) -> list[Entry]:
        """Return what the workers have noted, in its order."""
        found = (one for worker in self.workers for one in worker.entries)
        return sorted((one for one in found if one.what in kinds), key=lambda one: one.at)

    def processed(self) -> dict[RecordKey, list[Entry]]:
        """Return who has begun to process each record, in the order of time."""
        found = defaultdict(list)
        for entry in self.entries("record"):
            found[entry.record].append(entry)
        return found

    def repeated(self) -> list[list[Entry]]:
        return [entries for entries in self.processed().values() if len(entries) > 1]

    def wait_until_all_is_read(self) -> None:
        """Wait until what is in the stream now is in the history: as long as some of it comes."""
        stored, read = set(self.stored()), 0

        def is_read_further() -> bool:
            nonlocal read
            before, read = read, len(stored & self.processed().keys())
            return read > before

        while read < len(stored):
            self.wait_until(is_read_further, "further record in the history")

    def rows(self) -> dict[str, StoredCheckpoint]:
        """Return what is stored of each shard."""
        properties = Properties.parse(self.properties)
        with closing(self.server.client()) as client:
            found = client.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]
        stream = StreamIdentity(
            name=STREAM, arn=found["StreamARN"], created_at=found["StreamCreationTimestamp"]
        )

        async def load() -> dict[str, StoredCheckpoint]:
            async with open_checkpoint_store(properties, clock=SystemClock()) as store:
                if isinstance(store, KclLeaseTable):
                    store.name_streams([stream])
                found = await store.load()
            return {key.shard_id: row for key, row in found.items() if key.shard_id != "*"}

        return asyncio.run(load())

    def leases(self) -> dict[str, Lease]:
        """Return the leases on the shards that have not ended."""
        return {
            shard_id: row.checkpoint.lease
            for shard_id, row in self.rows().items()
            if row.checkpoint.lease is not None and not row.checkpoint.progress.is_ended
        }

    def is_balanced(self, *workers: Worker) -> bool:
        """Say whether ``workers`` have every shard between them, each about as many."""
        leases = self.leases()
        if any(one.leaving or one.owner is None for one in leases.values()):
            return False
        shards: defaultdict[int, set[str]] = defaultdict(set)
        for shard_id, lease in leases.items():
            # A worker that was given no name is host/process/number.
            shards[int(str(lease.owner).split("/")[1])].add(shard_id)
        counts = [len(one) for one in shards.values()]
        return (
            shards.keys() == {one.process.pid for one in workers}
            and max(counts) - min(counts) <= 1
            # A worker learns that it has a lease after the store does.
            and all(shards[one.process.pid] <= self.held_by(one) for one in workers)
        )

    def wait_until_balanced(self, *workers: Worker) -> float:
        names = ", ".join(one.name for one in workers)
        return self.wait_until(lambda: self.is_balanced(*workers), f"equal shares of {names}")

    def held_by(self, worker: Worker) -> set[str]:
        """Return the shards that a worker reads, by what it has noted."""
        found = set()
        for entry in worker.entries:
            if entry.what == "LeaseTaken":
                found.add(entry.shard_id)
            elif entry.what in {"LeaseLost", "LeaseReleased"}:
                found.discard(entry.shard_id)
        return found

    def assert_history(self) -> None:
        """Check that each shard had one reader at a time, which read everything in its order.

        What was handed out before a pause is finished after it: a record, or the batch of a worker
        with a callback for batches. The owner of a lease becomes the reader with a record: a worker
        that waits long for the store reports a lease that others have taken, and reads nothing.
        """
        assert set(self.stored()) == self.processed().keys()
        latest: dict[str, int] = {}
        for first, *_ in self.processed().values():
            shard_id, number = first.record
            assert number > latest.get(shard_id, 0), f"{first} after {latest[shard_id]}"
            latest[shard_id] = number
        workers = {one.name: one for one in self.workers}
        for entries in by_shard(self.entries("LeaseTaken", "record")).values():
            reader, number = "", 0
            taken_at: dict[str, float] = defaultdict(float)
            for entry in entries:
                if entry.what == "LeaseTaken":
                    taken_at[entry.worker] = entry.at
                    number = 0 if entry.worker == reader else number
                elif entry.worker == reader:
                    assert entry.record[1] > number, f"{entry} again by the same worker"
                    number = entry.record[1]
                elif taken_at[entry.worker] > taken_at[reader]:
                    reader, number = entry.worker, entry.record[1]
                else:
                    worker = workers[entry.worker]
                    is_rest = worker.was_out_between(worker.handed_out_after(entry), entry.at)
                    assert is_rest, f"{entry}, but {reader} had the lease"

    def assert_parents_first(self) -> None:
        """Check that no record of a child was begun before the last one of its parents."""
        processed = by_shard(entries[0] for entries in self.processed().values())
        with closing(self.server.client()) as client:
            shards = client.list_shards(StreamName=STREAM)["Shards"]
        for shard in shards:
            children = processed.get(shard["ShardId"])
            for name in ("ParentShardId", "AdjacentParentShardId"):
                parents = processed.get(shard.get(name, ""))
                if parents and children:
                    assert parents[-1].at < children[0].at, (parents[-1], children[0])


class Producer:
    """Puts records while the context lasts, over all shards."""

    def __init__(self, team: Team, records_per_second: int = 200) -> None:
        self._team, self._count, self._pace = team, records_per_second // 20, 0.05
        self._keys = random.Random(16)
        self._is_over = Event()
        # Held while the stream is changed.
        self.turn = Lock()
        self._thread = Thread(target=self._put, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _put(self) -> None:
        while not self._is_over.wait(self._pace):
            keys = [f"key {self._keys.random()}" for _ in range(self._count)]
            with self.turn:
                self._team.server.put_many(STREAM, [(key, b"a record") for key in keys])


def let_pass(seconds: float) -> None:
    """Wait where time itself is what is waited for."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, "end of time")


def wait_until(is_true: Callable[[], object], what: str) -> float:
    """Wait until something is so; return when it was seen."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        began_at = time.monotonic()
        if is_true():
            return time.monotonic()
        assert began_at < deadline, f"there is no {what}"
        # A long history takes long to look at, and the workers need the processors, too.
        time.sleep(max(_LOOK_SECONDS, time.monotonic() - began_at))


def keys_of(shards: int) -> list[str]:
    """Return a partition key of each shard of a new stream."""
    found: dict[int, str] = {}
    for key in map(str, itertools.count()):
        found.setdefault(int(md5(key.encode()).hexdigest(), 16) * shards >> 128, key)
        if len(found) == shards:
            return [found[number] for number in range(shards)]
    raise AssertionError


def by_shard(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    found: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        found[entry.shard_id].append(entry)
    return found
