"""Everything that the operations of the service act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import Factory, define, field

from kinesis_publishers.testing.local_kinesis.errors import expired_next_token, limit_exceeded
from kinesis_publishers.testing.local_kinesis.faults import FaultPlan
from kinesis_publishers.testing.local_kinesis.rates import Rates
from kinesis_publishers.testing.local_kinesis.requests import Request, stream_name_of
from kinesis_publishers.testing.local_kinesis.subscriptions import Subscriptions

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.account import Account
    from kinesis_publishers.testing.local_kinesis.limits import Behaviour, Limits
    from kinesis_publishers.testing.local_kinesis.stream import Stream

__all__ = ["ServiceState"]


@define(eq=False)
class ServiceState:
    """One account, the limits that hold for it, its subscriptions, and the planned faults."""

    account: Account
    limits: Limits
    rates: Rates = field(factory=Rates)
    faults: FaultPlan = Factory(lambda self: FaultPlan(self.account.clock), takes_self=True)
    subscriptions: Subscriptions = field(factory=Subscriptions)

    @property
    def behaviour(self) -> Behaviour:
        return self.account.behaviour

    def now_ms(self) -> int:
        return self.account.now_ms()

    def monotonic(self) -> float:
        return self.account.clock.monotonic()

    def name_in(self, request: Request) -> str:
        """Return the name of the stream that a request is about."""
        return stream_name_of(request, self.account.arn_of(""))

    def stream_in(self, request: Request) -> Stream:
        return self.account.find(self.name_in(request))

    def readable_stream_in(self, request: Request) -> Stream:
        return self.account.find_readable(self.name_in(request))

    def active_stream_in(self, request: Request) -> Stream:
        return self.account.find_active(self.name_in(request))

    def check_creation(self, stream: Stream, created_ms: float | None) -> None:
        """Refuse a StreamCreationTimestamp that is that of another stream of the name."""
        # botocore sends whole seconds, so seconds are what can be compared.
        if created_ms is not None and int(created_ms) // 1000 != stream.created_ms // 1000:
            raise self.account.not_found(stream.name)

    def check_token(self, created_ms: int, lifetime_seconds: float | None) -> None:
        """Refuse a token of a list that is too old."""
        age_ms = self.now_ms() - created_ms
        if lifetime_seconds is not None and age_ms > lifetime_seconds * 1000:
            raise expired_next_token("The NextToken has expired.")

    def take_control_call(self, operation: str, per_second: int | None, *scope: str) -> None:
        """Count a call of the control plane; ``scope`` is what the rate holds for.

        Raises:
            ApiError: LimitExceededException above the rate.
        """
        if not self.rates.take_call((operation, *scope), per_second, self.monotonic()):
            raise limit_exceeded(f"Rate exceeded for {operation}.")
