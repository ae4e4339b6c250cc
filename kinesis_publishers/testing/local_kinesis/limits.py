"""The limits of the service, the duration of its changes, and the windows that measure rates."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Literal

from attrs import define, evolve, field, fields, frozen

_MIB = 1024 * 1024
_PAGE_SIZES = (
    "get_records_max_bytes",
    "get_records_max_records",
    "list_shards_max_results",
    "event_max_bytes",
    "event_max_records",
)

TrimmedIterator = Literal["stuck", "invalid_argument", "trim_horizon"]
Takeover = Literal["close", "exception"]


@frozen(kw_only=True)
class Limits:
    """The quotas of Kinesis Data Streams; ``None`` switches one off.

    Source: "Quotas and limits" and the API reference of Amazon Kinesis Data Streams. Rates are per
    shard, except those of the control plane, which are per account; those of consumers are per
    stream (RegisterStreamConsumer: per account), those of SubscribeToShard per shard and consumer.

    Attributes:
        resubscribe_seconds: how long after a successful SubscribeToShard another one is refused.
        subscription_seconds: how long a subscription lasts.
        subscribe_bytes_per_second: how fast a subscription delivers; it waits, it does not fail.
        event_max_bytes: data and partition keys of one event, which may exceed it with one record.
        consumers_per_stream: not for an on-demand stream of an account that has enabled
            MinimumThroughputBillingCommitment, which takes ``consumers_per_advantage_stream``.
        settings_calls_per_second: of each operation for settings, tags and policies.
        creating_consumers: how many consumers of an account may be CREATING at once.
    """

    get_records_calls_per_second: int | None = 5
    get_records_bytes_per_second: int | None = 2 * _MIB
    get_records_max_bytes: int | None = 10 * _MIB
    get_records_max_records: int | None = 10_000
    get_shard_iterator_calls_per_second: int | None = 5
    iterator_lifetime_seconds: float | None = 300.0
    list_shards_max_results: int | None = 1000
    list_shards_token_lifetime_seconds: float | None = 300.0
    record_max_bytes: int | None = _MIB
    put_records_max_entries: int | None = 500
    put_records_max_bytes: int | None = 10 * _MIB
    write_bytes_per_second: int | None = None
    write_records_per_second: int | None = None
    update_shard_count_factor: int | None = 2
    describe_stream_calls_per_second: int | None = None
    describe_stream_summary_calls_per_second: int | None = None
    list_shards_calls_per_second: int | None = None
    list_streams_calls_per_second: int | None = None
    describe_limits_calls_per_second: int | None = None
    settings_calls_per_second: int | None = None
    consumers_per_stream: int | None = 20
    consumers_per_advantage_stream: int | None = 50
    creating_consumers: int | None = 5
    register_consumer_calls_per_second: int | None = 5
    deregister_consumer_calls_per_second: int | None = 5
    describe_consumer_calls_per_second: int | None = 20
    list_consumers_calls_per_second: int | None = 5
    list_consumers_token_lifetime_seconds: float | None = 300.0
    subscribe_calls_per_second: int | None = 1
    subscribe_bytes_per_second: int | None = 2 * _MIB
    resubscribe_seconds: float | None = 5.0
    subscription_seconds: float | None = 300.0
    event_max_bytes: int | None = _MIB
    event_max_records: int | None = 10_000

    @classmethod
    def aws(cls, *, writes: bool = False, control_plane: bool = False) -> Limits:
        """Return AWS's limits on reading and sizes.

        ``writes`` adds 1 MiB/s and 1,000 records/s per shard, ``control_plane`` the call rates of
        Describe and List, and of settings.
        """
        limits = cls()
        if writes:
            limits = evolve(limits, write_bytes_per_second=_MIB, write_records_per_second=1000)
        if control_plane:
            limits = evolve(
                limits,
                describe_stream_calls_per_second=10,
                describe_stream_summary_calls_per_second=20,
                list_shards_calls_per_second=1000,
                list_streams_calls_per_second=5,
                describe_limits_calls_per_second=1,
                settings_calls_per_second=5,
            )
        return limits

    @classmethod
    def off(cls) -> Limits:
        """Return no rates, no expiry and no limits on what is put.

        The size of one answer or event stays limited (10 MiB or 1 MiB, 10,000 records, 1,000
        shards): without pages a client would not meet the service it is written for. Set those to
        ``None`` one by one.
        """
        return cls(**{one.name: None for one in fields(cls) if one.name not in _PAGE_SIZES})


@frozen(kw_only=True)
class Behaviour:
    """The behaviour of the service where AWS takes time, or where its answer is a trap.

    Attributes:
        creating_seconds: how long a new stream is CREATING.
        deleting_seconds: how long a deleted stream stays visible as DELETING.
        updating_seconds: how long a reshard or a change of the retention keeps a stream UPDATING;
            shards change when it ends.
        trimmed_iterator: what AFTER_SEQUENCE_NUMBER of a trimmed record leads to. AWS answers
            nothing for ever, with ``MillisBehindLatest`` stuck at the retention period.
        late_shard_end: the null iterator (or continuation) of a closed shard does not come with its
            last records, nor with the first answer, but with an answer (or event) of its own,
            without records.
        consumer_creating_seconds: how long a new consumer is CREATING.
        consumer_deleting_seconds: how long a deregistered consumer stays visible as DELETING.
        heartbeat_seconds: how long a subscription is silent before it sends an event without
            records.
        takeover: how a subscription ends when another one takes its place: "close" ends the body,
            "exception" sends a ResourceInUseException first. AWS does either.
        clock_skew_seconds: how far the wall clock of the service is ahead of the clock it was
            given; negative: behind.
    """

    creating_seconds: float = 0.0
    deleting_seconds: float = 0.0
    updating_seconds: float = 0.0
    trimmed_iterator: TrimmedIterator = "stuck"
    late_shard_end: bool = False
    consumer_creating_seconds: float = 0.0
    consumer_deleting_seconds: float = 0.0
    heartbeat_seconds: float = 5.0
    takeover: Takeover = "close"
    clock_skew_seconds: float = 0.0
    region: str = "us-east-1"
    account_id: str = "123456789012"


# The client paces departures, the server sees arrivals: without some tolerance a client with a
# period of exactly 200 ms would be refused whenever one request travels faster than the one before.
_WINDOW_SECONDS = 0.95


@define
class RateWindow:
    """Amounts taken within the last second."""

    _taken: deque[tuple[float, float]] = field(factory=deque)
    _total: float = 0.0
    _blocked_until: float = float("-inf")

    def total(self, now: float) -> float:
        while self._taken and now >= self._taken[0][0] + _WINDOW_SECONDS:
            self._total -= self._taken.popleft()[1]
        return self._total

    def seconds_until_fits(self, now: float, amount: float, most: float) -> float:
        """Return how long to wait until ``amount`` more is within ``most``.

        An empty window takes any amount: what exceeds ``most`` by itself passes alone.
        """
        total = self.total(now)
        free_at = max(now, self._blocked_until)
        for taken_at, taken in self._taken:
            if total + amount <= most:
                break
            total -= taken
            free_at = max(free_at, taken_at + _WINDOW_SECONDS)
        return free_at - now

    def is_blocked(self, now: float) -> bool:
        return now < self._blocked_until

    def take(self, now: float, amount: float = 1.0, most: float | None = None) -> None:
        """Take an amount; one above ``most`` blocks the window until it is made up for."""
        self._taken.append((now, amount))
        self._total += amount
        if most is not None and amount > most:
            self._blocked_until = max(self._blocked_until, now + amount / most)


@define
class Rates:
    """One window per key; a key names what is limited, e.g. ``("GetRecords", stream, shard)``."""

    _windows: dict[tuple[str, ...], RateWindow] = field(factory=lambda: defaultdict(RateWindow))

    def window(self, *key: str) -> RateWindow:
        return self._windows[key]

    def take_call(self, key: tuple[str, ...], per_second: int | None, now: float) -> bool:
        """Count one call; answer whether it is within ``per_second``. A refused call is free."""
        if per_second is None:
            return True
        window = self.window(*key)
        if window.total(now) >= per_second:
            return False
        window.take(now)
        return True

    def clear(self) -> None:
        self._windows.clear()
