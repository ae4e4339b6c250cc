"""One account's streams and consumers, and all else that the operations of the service act on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pybase64
from attrs import Factory, define, field

from kinesis_publishers.clock import Clock
from kinesis_publishers.testing.local_kinesis.answers import (
    ApiError,
    expired_next_token,
    invalid_argument,
    limit_exceeded,
    resource_in_use,
    resource_not_found,
)
from kinesis_publishers.testing.local_kinesis.faults import FaultPlan
from kinesis_publishers.testing.local_kinesis.limits import Behaviour, Limits, Rates
from kinesis_publishers.testing.local_kinesis.requests import Request
from kinesis_publishers.testing.local_kinesis.sequence_numbers import CreationSeconds
from kinesis_publishers.testing.local_kinesis.shard import StoredRecord, hash_of_partition_key
from kinesis_publishers.testing.local_kinesis.stream import (
    Consumer,
    ConsumerArn,
    Stream,
    StreamMode,
    StreamStatus,
)
from kinesis_publishers.testing.local_kinesis.subscriptions import Subscription, Subscriptions

_DAY_SECONDS = 24 * 3600


@define
class Commitment:
    """The commitment to a minimum throughput, which makes on-demand streams On-demand Advantage.

    It lasts a day at least: one that is disabled before ends then, unless it is enabled again.
    """

    started_ms: int | None = None
    ends_ms: int | None = None

    def is_on(self, now_ms: int) -> bool:
        return self.started_ms is not None and (self.ends_ms is None or now_ms < self.ends_ms)

    def change(self, *, enabled: bool, now_ms: int) -> None:
        if enabled:
            self.started_ms = self.started_ms if self.is_on(now_ms) else now_ms
            self.ends_ms = None
        elif self.started_ms is not None and self.ends_ms is None:
            self.ends_ms = max(now_ms, self.started_ms + _DAY_SECONDS * 1000)

    def shape(self, now_ms: int) -> dict[str, object]:
        """Return the MinimumThroughputBillingCommitment of DescribeAccountSettings."""
        if self.started_ms is None:
            return {"Status": "DISABLED"}
        started = self.started_ms / 1000
        if self.ends_ms is not None and not self.is_on(now_ms):
            return {"Status": "DISABLED", "StartedAt": started, "EndedAt": self.ends_ms / 1000}
        status = "ENABLED" if self.ends_ms is None else "ENABLED_UNTIL_EARLIEST_ALLOWED_END"
        earliest = started + _DAY_SECONDS
        return {"Status": status, "StartedAt": started, "EarliestAllowedEndAt": earliest}


@define(eq=False)
class ServiceState:
    """One account: its streams, their consumers and subscriptions, its limits and faults.

    Every stream that it returns has been settled: what was due by now has happened.
    """

    clock: Clock
    behaviour: Behaviour
    limits: Limits
    rates: Rates = field(factory=Rates)
    faults: FaultPlan = Factory(lambda self: FaultPlan(self.clock), takes_self=True)
    subscriptions: Subscriptions = field(factory=Subscriptions)
    commitment: Commitment = field(factory=Commitment)
    _streams: dict[str, Stream] = field(factory=dict)
    _creation_seconds: CreationSeconds = field(factory=CreationSeconds)
    _last_creation_ms: int = 0
    _consumer_seconds: dict[str, CreationSeconds] = field(factory=dict)

    def now_ms(self) -> int:
        seconds = self.clock.now().timestamp() + self.behaviour.clock_skew_seconds
        return round(seconds * 1000)

    def arn_of(self, name: str) -> str:
        return f"arn:aws:kinesis:{self.behaviour.region}:{self.behaviour.account_id}:stream/{name}"

    def create(
        self, name: str, mode: StreamMode, shard_count: int, max_record_kib: int | None = None
    ) -> Stream:
        """Create a stream; ResourceInUseException if there is one, even a DELETING one."""
        if self.get(name) is not None:
            raise resource_in_use(
                f"Stream {name} under account {self.behaviour.account_id} already exists."
            )
        now_ms = self.now_ms()
        # A stream that is created again must differ in its creation time, however fast a test is.
        self._last_creation_ms = created_ms = max(now_ms, self._last_creation_ms + 1)
        stream = Stream(
            name=name,
            arn=self.arn_of(name),
            account_id=self.behaviour.account_id,
            mode=mode,
            created_ms=created_ms,
            creation_seconds=self._creation_seconds,
            active_ms=now_ms + _milliseconds(self.behaviour.creating_seconds),
            max_record_kib=max_record_kib,
        )
        stream.add_initial_shards(shard_count, now_ms)
        self._streams[name] = stream
        return stream

    def delete(self, stream: Stream) -> None:
        """Delete a stream and its consumers; their subscriptions end."""
        for subscription in self.subscriptions.find(stream.name):
            subscription.end(self.not_found(stream.name))
        for consumer in stream.present_consumers(self.now_ms()):
            self.deregister(consumer)
        stream.deleted_ms = self.now_ms() + _milliseconds(self.behaviour.deleting_seconds)

    def register(self, stream: Stream, name: str, tags: dict[str, str]) -> Consumer:
        """Register a consumer; ResourceInUseException if there is one, even a DELETING one."""
        now_ms = self.now_ms()
        existing = stream.consumer(name, now_ms)
        if existing is not None:
            raise resource_in_use(
                f"Consumer {name} of stream {stream.name} under account {stream.account_id} "
                f"already exists in state {existing.status(now_ms)}."
            )
        # The ARN counts in seconds: one that is registered again within a second runs ahead.
        base_arn = f"{stream.arn}/consumer/{name}"
        second = self._consumer_seconds.setdefault(base_arn, CreationSeconds()).next(now_ms)
        consumer = stream.consumers[name] = Consumer(
            name=name,
            arn=f"{base_arn}:{second}",
            created_ms=second * 1000,
            active_ms=now_ms + _milliseconds(self.behaviour.consumer_creating_seconds),
            tags=tags,
        )
        return consumer

    def deregister(self, consumer: Consumer) -> None:
        """Deregister a consumer; its subscriptions end. One that is DELETING is gone no later."""
        if consumer.deleted_ms is None:
            deleting = _milliseconds(self.behaviour.consumer_deleting_seconds)
            consumer.deleted_ms = self.now_ms() + deleting
        self.subscriptions.end(consumer_not_found(consumer.arn), consumer)

    def change(self, stream: Stream, change: Callable[[int], object]) -> None:
        """Apply ``change`` to a stream, which stays UPDATING for the configured time before."""
        now_ms = self.now_ms()
        stream.change_later(now_ms + _milliseconds(self.behaviour.updating_seconds), change)
        stream.settle(now_ms)

    def set_later(self, stream: Stream, **settings: object) -> None:
        """Set attributes of a stream as :meth:`change` does."""

        def apply(_: int) -> None:
            for name, value in settings.items():
                setattr(stream, name, value)

        self.change(stream, apply)

    def get(self, name: str) -> Stream | None:
        """Return a stream in any state, or None."""
        stream = self._streams.get(name)
        if stream is None:
            return None
        now_ms = self.now_ms()
        if stream.deleted_ms is not None and stream.deleted_ms <= now_ms:
            del self._streams[name]
            return None
        stream.settle(now_ms)
        return stream

    def find(self, named: str | Request) -> Stream:
        """Return a stream in any state, by name or request; or raise ResourceNotFoundException."""
        name = named if isinstance(named, str) else self.name_in(named)
        stream = self.get(name)
        if stream is None:
            raise self.not_found(name)
        return stream

    def find_readable(self, named: str | Request) -> Stream:
        """Return a stream that takes data calls; to them one in creation does not exist yet."""
        stream = self.find(named)
        if stream.status(self.now_ms()) not in ("ACTIVE", "UPDATING"):
            raise self.not_found(stream.name)
        return stream

    def find_active(self, named: str | Request, *allowed: StreamStatus) -> Stream:
        """Return a stream that is ACTIVE or ``allowed``; otherwise: ResourceInUseException."""
        stream = self.find(named)
        status = stream.status(self.now_ms())
        if status not in ("ACTIVE", *allowed):
            raise resource_in_use(
                f"Stream {stream.name} under account {self.behaviour.account_id} not ACTIVE, "
                f"instead in state {status}"
            )
        return stream

    def all_streams(self) -> list[Stream]:
        """Return all streams by name."""
        found = (self.get(name) for name in sorted(self._streams))
        return [stream for stream in found if stream is not None]

    def clear(self) -> None:
        """Forget streams, subscriptions, faults and rates."""
        self._streams.clear()
        self.subscriptions.end(resource_not_found("The service was reset."))
        self.faults.clear()
        self.rates.clear()
        self.commitment = Commitment()

    def not_found(self, name: str) -> ApiError:
        return resource_not_found(
            f"Stream {name} under account {self.behaviour.account_id} not found."
        )

    def write(
        self, stream: str, records: Iterable[tuple[str | None, bytes]]
    ) -> list[tuple[str, str]]:
        """Store (partition key, data) pairs; return the shard id and sequence number of each."""
        found = self.find_readable(stream)
        now_ms = self.now_ms()
        stored: list[tuple[str, str]] = []
        for key, data in records:
            shard = found.destination(None if key is None else hash_of_partition_key(key))
            number = shard.append(
                pybase64.b64encode(data).decode(),
                key,
                len(data) + len((key or "").encode()),
                now_ms,
                found.key_id,
            )
            stored.append((shard.shard_id, str(number)))
        return stored

    def read(self, stream: str) -> dict[str, list[StoredRecord]]:
        """Return the records of every retained shard, oldest first."""
        shards = self.find(stream).retained_shards(self.now_ms())
        return {shard.shard_id: shard.stored_records() for shard in shards}

    def trim(
        self,
        stream: str,
        *,
        shard_id: str | None = None,
        through: str | None = None,
        drop_closed_shards: bool = True,
    ) -> int:
        """Remove records as :meth:`LocalKinesis.trim` says; return how many."""
        found, now_ms = self.find(stream), self.now_ms()
        one = None if shard_id is None else found.shard(shard_id, now_ms)
        removed = 0
        for shard in found.retained_shards(now_ms) if one is None else [one]:
            before = shard.record_count
            shard.trim_through(int(through) if through is not None else shard.last_number)
            removed += before - shard.record_count
            if drop_closed_shards and not shard.is_open and not shard.record_count:
                del found.shards[shard.shard_id]
        return removed

    def name_in(self, request: Request) -> str:
        """Return the name of the stream that a request means by StreamName or StreamARN."""
        name, arn = request.text("StreamName"), request.text("StreamARN")
        if arn is None:
            if name is None:
                raise invalid_argument("Either StreamName or StreamARN must be provided.")
            return name
        own_arn_prefix = self.arn_of("")
        if not arn.startswith(own_arn_prefix):
            raise resource_not_found(f"Stream {arn} not found.")
        named = arn.removeprefix(own_arn_prefix)
        if name is not None and name != named:
            raise invalid_argument("StreamName and StreamARN name different streams.")
        return named

    def find_consumer(self, arn: str) -> tuple[Stream, Consumer]:
        """Return the consumer with an ARN, in any state, and its stream."""
        parsed = ConsumerArn.parse(arn)
        if parsed.stream_arn != self.arn_of(parsed.stream_name):
            raise consumer_not_found(arn)
        stream = self.find(parsed.stream_name)
        consumer = stream.consumer(parsed.consumer_name, self.now_ms())
        if consumer is None or consumer.arn != arn:
            raise consumer_not_found(arn)
        return stream, consumer

    def resource_in(self, request: Request) -> Stream | Consumer:
        """Return the stream or the consumer that a request means by ResourceARN."""
        arn = request.required_text("ResourceARN")
        if "/consumer/" in arn:
            return self.find_consumer(arn)[1]
        return self.find_active(Request({"StreamARN": arn}), "UPDATING")

    def check_creation(self, stream: Stream, created_ms: float | None) -> None:
        """Refuse a StreamCreationTimestamp that is that of another stream of the name."""
        # botocore sends whole seconds, so seconds are what can be compared.
        if created_ms is not None and int(created_ms) // 1000 != stream.created_ms // 1000:
            raise self.not_found(stream.name)

    def check_token(self, created_ms: int, lifetime_seconds: float | None) -> None:
        """Refuse a token of a list that is too old."""
        age_ms = self.now_ms() - created_ms
        if lifetime_seconds is not None and age_ms > lifetime_seconds * 1000:
            raise expired_next_token("The NextToken has expired.")

    def take_control_call(self, operation: str, per_second: int | None, *scope: str) -> None:
        """Count a call of the control plane, or refuse it; ``scope`` is what the rate holds for."""
        if not self.rates.take_call((operation, *scope), per_second, self.clock.monotonic()):
            raise limit_exceeded(f"Rate exceeded for {operation}.")


def consumer_not_found(consumer: str) -> ApiError:
    return resource_not_found(f"Consumer {consumer} not found.")


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


#: The answer: its members, a body that is JSON already, nothing at all, or a subscription whose
#: events follow.
Members = dict[str, object] | bytes | Subscription | None

Operation = Callable[[ServiceState, Request], Members]
