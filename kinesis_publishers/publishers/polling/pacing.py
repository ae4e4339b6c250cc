"""When to ask next and how much to ask for: pure functions."""

from __future__ import annotations

__all__ = [
    "MAX_PAGE_BYTES",
    "MIN_PAGE_BYTES",
    "adapted_limit",
    "delay_before_next_call",
    "expected_page",
]

#: The most that one GetRecords returns (AWS service limits).
MAX_PAGE_BYTES = 10 * 1024 * 1024
#: What is reserved for a shard whose last answer was (nearly) empty.
MIN_PAGE_BYTES = 256 * 1024
_MIN_PAGE_RECORDS = 250
# A page may grow from one call to the next before the estimate follows.
_GROWTH = 2
# The read quota of a shard: 2 MB/s, taken as 2 MiB like Flink's connector does.
_SHARD_BYTES_PER_SECOND = 2 * 1024 * 1024


def delay_before_next_call(period_seconds: float, elapsed_seconds: float) -> float:
    """Return how long to wait so that calls begin ``period_seconds`` apart.

    The time since the last call began counts, processing included: five calls a second are allowed
    per shard, however fast the consumer is, and a slow consumer is not slowed further.
    """
    return max(0.0, period_seconds - elapsed_seconds)


def adapted_limit(
    current: int, *, records: int, payload_bytes: int, loop_seconds: float, maximum: int
) -> int:
    """Return the Limit that uses the shard's 2 MB/s without exceeding them.

    Args:
        current: the limit in use; kept while an answer says nothing (no records, no time).
        records: how many records the last answer had.
        payload_bytes: how large they were together; 0 is possible, payloads may be empty.
        loop_seconds: the time from call to call.
        maximum: the configured upper bound, 1 to 10,000.
    """
    if records <= 0 or loop_seconds <= 0:
        return current
    if payload_bytes <= 0:
        return maximum
    fitting = _SHARD_BYTES_PER_SECOND * loop_seconds * records / payload_bytes
    return int(max(1, min(maximum, fitting)))


def expected_page(last_records: int | None, last_bytes: int | None, limit: int) -> tuple[int, int]:
    """Return (records, bytes) to reserve before a call, from the size of the last answer.

    The first answer may be anything up to the service's maximum; after that a page is expected to
    be at most twice its predecessor.
    """
    if last_records is None or last_bytes is None:
        return limit, MAX_PAGE_BYTES
    return (
        min(limit, max(_MIN_PAGE_RECORDS, _GROWTH * last_records)),
        min(MAX_PAGE_BYTES, max(MIN_PAGE_BYTES, _GROWTH * last_bytes)),
    )
