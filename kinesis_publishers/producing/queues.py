"""The queues of waiting records, one per shard."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence

from attrs import define, field

from kinesis_publishers.assembly import WritingServices
from kinesis_publishers.errors import ServiceError
from kinesis_publishers.model import ShardKey, hash_key_of
from kinesis_publishers.producing.key_order import KeyOrder
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
        records, size: the number of waiting records, and their bytes.
        aside: the number of records that wait for others of their partition keys.
        sending: the number of records that are being sent.
        blocked_until: nothing is sent before this time, because the shard refused records.
        refused_at: the time of its last refusal.
        error: the error of that refusal.
        budget: decides how long to wait after a refusal.
        choices: as in :class:`ShardMap`: the queue has the records of this many shards.
        leaves_out_keys: whether records are sent without their random keys.
    """

    shard: ShardKey
    limiter: ShardLimiter
    budget: RetryBudget
    choices: int = 0
    leaves_out_keys: bool = field(init=False)
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

    @classmethod
    def of(cls, shard: ShardKey, services: WritingServices, choices: int) -> ShardQueue:
        """Return a new queue of a shard."""
        config, clock = services.config, services.clock
        rate = config.rate * max(1, choices)
        return cls(
            shard,
            ShardLimiter(rate, config.adapts_rate, clock.monotonic()),
            RetryBudget(config.retry, clock, events=services.events, shard=shard),
            choices,
        )

    @leaves_out_keys.default
    def _is_auto(self) -> bool:
        return self.choices > 0

    @property
    def is_idle(self) -> bool:
        """Whether the buffer has no records for the shard."""
        return not (self.records or self.aside or self.sending)

    def block(self, until: float, error: ServiceError) -> None:
        """Send nothing before a time, because of a refusal."""
        self.blocked_until = max(self.blocked_until, until)
        self.error = error

    def append(self, run: Run, *, is_open: bool = False) -> None:
        """Append records; single ones may be added to an open run later."""
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
        """Return the partition keys to send, as :meth:`key_of` does."""
        return map(self.key_of, keys) if self.leaves_out_keys else keys

    def seal(self) -> None:
        """Close the open run."""
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
        """Take the oldest ``count`` records."""
        taken: list[Run] = []
        while count > 0:
            taken.append(self.pop(count))
            count -= len(taken[-1])
        return taken

    def clear(self) -> Iterable[Run]:
        """Take everything."""
        taken, self.waiting = self.waiting, deque()
        self.records = self.size = 0
        self.seal()
        return taken


@define(eq=False)
class ShardQueues:
    """The queues of a stream, found by partition key.

    It alone knows the order of keys, if they have one: which records are being sent, and which were
    put aside behind them.
    """

    _services: WritingServices
    _map: ShardMap
    _order: KeyOrder | None = None
    _queues: dict[ShardKey, ShardQueue] = field(factory=dict, init=False)
    _by_key: dict[str, ShardQueue] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        if self._map.choices:
            self._log_distribution()

    def _log_distribution(self) -> None:
        if self._map.choices:
            text = (
                "The stream %s distributes its records itself (strategy AUTO). The producer does "
                "not aggregate them, and records of one partition key have no order."
            )
        else:
            text = "The stream %s distributes its records by their partition keys again."
        _LOGGER.warning(text, self._services.name)

    @property
    def shard_map(self) -> ShardMap:
        """The prediction of the shard of a record."""
        return self._map

    @property
    def aggregates(self) -> bool:
        """Whether records are packed, which requires a prediction of their shards."""
        return self._services.config.aggregates and not self._map.choices

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
        shard = self._map.shard_of(hash_key_of(partition_key, explicit_hash_key)).key
        queue = self._queues.get(shard)
        if queue is None:
            queue = self._queues[shard] = ShardQueue.of(shard, self._services, self._map.choices)
        return queue

    def split(self, run: Run) -> Sequence[tuple[ShardQueue, Run]]:
        """Return the queues that the records of a run belong to, each with its own."""
        if run.home is not None and run.home[1] is self._map:
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
            run.home = queues[0], self._map
            return [(queues[0], run)]
        indices: dict[ShardQueue, list[int]] = {}
        for index, queue in enumerate(queues):
            indices.setdefault(queue, []).append(index)
        shares = [(queue, run.pick(own)) for queue, own in indices.items()]
        for queue, own_run in shares:
            own_run.home = queue, self._map
        return shares

    @property
    def has_order(self) -> bool:
        """Whether the records of a partition key are sent in order."""
        return self._order is not None

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
            queue: the queue.
            most: the maximum number.
            size: the approximate maximum in bytes.
            sent: the keys of records that are sent before.
            is_one_per_key: whether only one record of each key may be sent.
        """
        assert self._order is not None, "records have no order"
        free: list[Run] = []
        keys: set[str] = set()
        while queue.waiting and len(free) < most and size > 0:
            run = queue.pop(1)
            if self._order.admits(run, keys if is_one_per_key else sent):
                keys.add(run.partition_keys[0])
                free.append(run)
                size -= run.size
            else:
                queue.aside += 1
        queue.prepend(free)
        return free

    def begin(self, queue: ShardQueue, runs: Sequence[Run]) -> None:
        """Count records of a queue that are being sent."""
        queue.sending += sum(map(len, runs))
        if self._order is not None:
            self._order.begin(runs)

    def end(self, queue: ShardQueue, runs: Sequence[Run]) -> None:
        """Count records of a queue that are no longer being sent."""
        queue.sending -= sum(map(len, runs))
        if self._order is not None:
            self._order.end(runs)

    def put_again(self, runs: Iterable[Run]) -> None:
        """Put records in front of their queues that were sent and must be sent again."""
        others: list[Run] = []
        for run in runs:
            # Older and newer records may be aside by now: all of a key are freed in order.
            if self._order is not None and self._order.rejoins(run):
                self._queue_of(run).aside += 1
            else:
                others.append(run)
        self._prepend(others)

    def free(self, runs: Iterable[Run]) -> None:
        """Let records wait again that were put aside behind ``runs``, which have left."""
        if self._order is not None:
            for queue, count in self._prepend(self._order.freed(runs)):
                queue.aside -= count

    def take_aside(self) -> Sequence[tuple[ShardQueue, Run]]:
        """Take all records that were put aside, each with its queue."""
        taken = [(self._queue_of(run), run) for run in self._order or ()]
        for queue, _ in taken:
            queue.aside -= 1
        if self._order is not None:
            self._order.clear()
        return taken

    def _queue_of(self, run: Run) -> ShardQueue:
        return self.queue_of(run.partition_keys[0], run.hash_key_at(0))

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
        has_changed = bool(shard_map.choices) != bool(self._map.choices)
        self._map = shard_map
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
        for queue in self:
            queue.aside = 0
        for run in self._order or ():
            self._queue_of(run).aside += 1
