"""What an account has agreed with the service, beside its streams."""

from __future__ import annotations

from attrs import define

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
