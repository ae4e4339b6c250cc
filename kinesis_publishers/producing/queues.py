"""The queues of waiting records, one per shard."""

from __future__ import annotations

import logging
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence

from attrs import define, field

from kinesis_publishers.assembly import WritingServices
from kinesis_publishers.config import Ordering
from kinesis_publishers.errors import ServiceError
from kinesis_publishers.model import ShardKey, hash_key_of
from kinesis_publishers.producing.limiter import ShardLimiter
from kinesis_publishers.producing.records import Run, SinglePuts
from kinesis_publishers.producing.routing import RandomKey, ShardMap
from kinesis_publishers.retry import RetryBudget

_LOGGER = logging.getLogger(__name__)
# The number of partition keys that are cached with their queues, which saves the hash.
_REMEMBERED_KEYS = 20_000
# The maximum number of single records in a run.
_LONGEST_RUN = 500


@define(eq=False)
class ShardQueue:
    """The waiting records of one shard, oldest first.

    Attributes:
        budget: decides how long to wait after a refusal.
        choices: as in :class:`ShardMap`: the queue has the records of this many shards.
        leaves_out_keys: whether records are sent without their random keys.
        records, size: the number of waiting records, and their bytes.
        aside: the number of records that wait for others of their partition keys.
        sending: the number of records that are being sent.
        blocked_until: nothing is sent before this time, because the shard refused records.
        refused_at, error: the time of its last refusal, and its error.
    """

    shard: ShardKey
    limiter: ShardLimiter
    budget: RetryBudget
    choices: int
    leaves_out_keys: bool
    waiting: deque[Run] = field(factory=deque)
    records: int = 0
    size: int = 0
    aside: int = 0
    sending: int = 0
    blocked_until: float = -math.inf
    refused_at: float = -math.inf
    error: ServiceError | None = None
    # The last run, if single records may be added to it.
    _open: Run | None = None

    def block(self, until: float, error: ServiceError) -> None:
        """Send nothing before a time, because of a refusal."""
        self.blocked_until = max(self.blocked_until, until)
        self.error = error

    def append(self, run: Run, *, is_open: bool = False) -> None:
        """Append records; :meth:`add_to_open` may add single ones to an open run."""
        self.waiting.append(run)
        self.records += len(run)
        self.size += run.size
        self._open = run if is_open else None

    def add_to_open(self, data: bytes, key: str, size: int, since: float) -> SinglePuts | None:
        """Add a record to the open run if that began after ``since``; return its puts."""
        run = self._open
        if run is None or len(run) >= _LONGEST_RUN or run.put_at < since:
            return None
        put = run.put
        assert isinstance(put, SinglePuts)
        assert isinstance(run.places, list)
        run.places.append(len(put.futures))
        run.payloads.append(data)
        run.partition_keys.append(key)
        run.size += size
        self.records += 1
        self.size += size
        return put

    def key_of(self, key: str) -> str | None:
        """Return the partition key to send; a random one may be left out."""
        return None if self.leaves_out_keys and type(key) is RandomKey else key

    def keys_of(self, keys: Sequence[str]) -> Iterable[str | None]:
        return map(self.key_of, keys) if self.leaves_out_keys else keys

    def seal(self) -> None:
        self._open = None

    def prepend(self, runs: Iterable[Run]) -> None:
        """Put records in front, in order: they are older than the waiting ones."""
        returned = list(runs)
        self.waiting.extendleft(reversed(returned))
        self.records += sum(map(len, returned))
        self.size += sum([run.size for run in returned])

    def pop(self, count: int) -> Run:
        """Take up to ``count`` of the oldest records, from one run."""
        run = self.waiting.popleft()
        if run is self._open:
            self._open = None
        if len(run) > count:
            self.waiting.appendleft(run.slice(count))
            run = run.slice(0, count)
        self.records -= len(run)
        self.size -= run.size
        return run

    def take(self, count: int) -> list[Run]:
        taken: list[Run] = []
        while count > 0:
            taken.append(self.pop(count))
            count -= len(taken[-1])
        return taken

    def clear(self) -> Iterable[Run]:
        taken, self.waiting = self.waiting, deque()
        self.records = self.size = 0
        self.seal()
        return taken


class ShardQueues:
    """The queues of a stream, found by partition key.

    They keep the order of keys, if there is one: one entry of a key is sent at a time. PutRecords
    keeps no order among the entries of a call, and either of two calls may be refused. Records of a
    busy key are put aside until the key is free. With order every run has one record.
    """

    def __init__(self, services: WritingServices, shard_map: ShardMap) -> None:
        self._services = services
        self.shard_map = shard_map
        self.has_order = services.config.ordering is Ordering.KEY
        self._queues: dict[ShardKey, ShardQueue] = {}
        self._by_key: dict[str, ShardQueue] = {}
        # The keys whose records are being sent, and the records that wait for that.
        self._busy: set[str] = set()
        self._aside: dict[str, deque[Run]] = {}
        if shard_map.choices:
            self._log_distribution()

    def _log_distribution(self) -> None:
        if self.shard_map.choices:
            text = (
                "The stream %s distributes its records itself (strategy AUTO). The producer does "
                "not aggregate them, and records of one partition key have no order."
            )
        else:
            text = "The stream %s distributes its records by their partition keys again."
        _LOGGER.warning(text, self._services.name)

    @property
    def aggregates(self) -> bool:
        """Whether records are packed, which requires a prediction of their shards."""
        return self._services.config.aggregates and not self.shard_map.choices

    def __iter__(self) -> Iterator[ShardQueue]:
        return iter(self._queues.values())

    def queue_of(self, partition_key: str, explicit_hash_key: str | None) -> ShardQueue:
        """Return the queue of the shard that a record will go to."""
        if explicit_hash_key is not None:
            return self._predicted(partition_key, explicit_hash_key)
        queue = self._by_key.get(partition_key)
        if queue is None:
            if len(self._by_key) >= _REMEMBERED_KEYS:
                self._by_key.clear()
            queue = self._by_key[partition_key] = self._predicted(partition_key, None)
        return queue

    def _predicted(self, partition_key: str, explicit_hash_key: str | None) -> ShardQueue:
        shard = self.shard_map.shard_of(hash_key_of(partition_key, explicit_hash_key)).key
        queue = self._queues.get(shard)
        if queue is None:
            queue = self._queues[shard] = self._new_queue(shard)
        return queue

    def _new_queue(self, shard: ShardKey) -> ShardQueue:
        services, choices = self._services, self.shard_map.choices
        config, clock = services.config, services.clock
        rate = config.rate * max(1, choices)
        limiter = ShardLimiter(rate, config.adapts_rate, clock.monotonic())
        budget = RetryBudget(config.retry, clock, events=services.events, shard=shard)
        return ShardQueue(shard, limiter, budget, choices, leaves_out_keys=choices > 0)

    def split(self, run: Run) -> Sequence[tuple[ShardQueue, Run]]:
        """Return the queues that the records of a run belong to, each with its own."""
        if run.home is not None and run.home[1] is self.shard_map:
            return [(run.home[0], run)]
        if len(run) == 1:
            return [(self.queue_of(run.partition_keys[0], run.hash_key_at(0)), run)]
        if run.explicit_hash_keys is None:
            known = self._by_key.get
            queues = [known(key) or self.queue_of(key, None) for key in run.partition_keys]
        else:
            columns = zip(run.partition_keys, run.explicit_hash_keys, strict=True)
            queues = [self.queue_of(key, hash_key) for key, hash_key in columns]
        if queues.count(queues[0]) == len(queues):
            run.home = queues[0], self.shard_map
            return [(queues[0], run)]
        indices: dict[ShardQueue, list[int]] = {}
        for index, queue in enumerate(queues):
            indices.setdefault(queue, []).append(index)
        shares = [(queue, run.pick(own)) for queue, own in indices.items()]
        for queue, own_run in shares:
            own_run.home = queue, self.shard_map
        return shares

    def admitted(
        self,
        queue: ShardQueue,
        *,
        most: float = math.inf,
        size: float = math.inf,
        sent: Container[str] = (),
        is_one_per_key: bool = False,
    ) -> Sequence[Run]:
        """Move records that may be sent to the front of a queue, and return them.

        Records behind others of their keys that are being sent are put aside.

        Args:
            most, size: the maximum number of records, and their approximate maximum in bytes.
            sent: the keys of records that are sent before.
            is_one_per_key: whether only one record of each key may be sent.
        """
        free: list[Run] = []
        keys: set[str] = set()
        while queue.waiting and len(free) < most and size > 0:
            run = queue.pop(1)
            if self._is_admitted(run, keys if is_one_per_key else sent):
                keys.add(run.partition_keys[0])
                free.append(run)
                size -= run.size
            else:
                self._aside.setdefault(run.partition_keys[0], deque())
                self._rejoins(run)
        queue.prepend(free)
        return free

    def _is_admitted(self, run: Run, sent: Container[str]) -> bool:
        key = run.partition_keys[0]
        line = self._aside.get(key)
        # A record must not pass an older one that was put aside.
        is_next = not line or run.number < line[0].number
        return is_next and key not in self._busy and key not in sent

    def _rejoins(self, run: Run) -> bool:
        """Put a record aside in order if others of its key are; return whether it was."""
        line = self._aside.get(run.partition_keys[0])
        if line is None:
            return False
        line.insert(bisect_right(line, run.number, key=lambda one: one.number), run)
        self.queue_of(run.partition_keys[0], run.hash_key_at(0)).aside += 1
        return True

    def begin(self, queue: ShardQueue, runs: Sequence[Run]) -> None:
        """Count records of a queue that are being sent, and mark their keys as busy."""
        queue.sending += sum(map(len, runs))
        if self.has_order:
            self._busy.update([run.partition_keys[0] for run in runs])

    def end(self, queue: ShardQueue, runs: Sequence[Run]) -> None:
        """Undo :meth:`begin`: the records are no longer being sent."""
        queue.sending -= sum(map(len, runs))
        if self.has_order:
            self._busy.difference_update([run.partition_keys[0] for run in runs])

    def put_again(self, runs: Iterable[Run]) -> None:
        """Put records in front of their queues that were sent and must be sent again."""
        # Older and newer records may be aside by now: all of a key are freed in order.
        self._prepend([run for run in runs if not self._rejoins(run)])

    def free(self, runs: Iterable[Run]) -> None:
        """Let records wait again that were put aside behind ``runs``, which have left."""
        if not self._aside:
            return
        freed: list[Run] = []
        for key in (self._aside.keys() & {run.partition_keys[0] for run in runs}) - self._busy:
            line = self._aside[key]
            # An aggregate takes all of them, in order.
            count = len(line) if self._services.config.aggregates else 1
            freed += [line.popleft() for _ in range(count)]
            if not line:
                del self._aside[key]
        for queue, count in self._prepend(freed):
            queue.aside -= count

    def free_all(self) -> None:
        """Let all records wait again that were put aside, in any order."""
        freed = [run for line in self._aside.values() for run in line]
        self._aside.clear()
        for queue, count in self._prepend(freed):
            queue.aside -= count

    def _prepend(self, runs: Iterable[Run]) -> Iterable[tuple[ShardQueue, int]]:
        """Put records in front of their queues, in order; return their number by queue."""
        returned: dict[ShardQueue, list[Run]] = {}
        for run in runs:
            for queue, own in self.split(run):
                returned.setdefault(queue, []).append(own)
        for queue, own_runs in returned.items():
            queue.prepend(own_runs)
        return [(queue, len(own_runs)) for queue, own_runs in returned.items()]

    def follow(self, shard_map: ShardMap) -> None:
        """Distribute the waiting records among the current shards."""
        self.free_all()
        has_changed = bool(shard_map.choices) != bool(self.shard_map.choices)
        self.shard_map = shard_map
        if has_changed:
            self._log_distribution()
        self._by_key.clear()
        # Take from all queues: a new shard may take records from any, not only from closed ones.
        runs = [run for queue in self for run in queue.clear()]
        for key in self._queues.keys() - shard_map.open_keys:
            del self._queues[key]
        # The records of merged shards have one order.
        for run in sorted(runs, key=lambda one: one.number):
            for queue, own in self.split(run):
                queue.append(own)
