"""What a canned subscription sends: events of prepared records, as fast as they are taken."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.canned_pages import Workload, page_of, place_of, sequence_number
from benchmarks.canned_server import STREAM_ARN
from kinesis_publishers.testing.local_kinesis.event_feed import INITIAL_RESPONSE, event_frame

if TYPE_CHECKING:
    from benchmarks.canned_server import CannedService

__all__ = ["HEARTBEAT_SECONDS", "CannedSubscription", "consumer_arn"]

#: How often an empty shard says that it is there.
HEARTBEAT_SECONDS = 5.0
_MILLIS_BEHIND = 60_000


def consumer_arn(workload: Workload) -> str:
    """Return the ARN of the consumer that every canned stream has."""
    return f"{STREAM_ARN}{workload.name}/consumer/benchmark:1759999000"


class CannedSubscription:
    """One accepted SubscribeToShard; the owner of the connection takes its frames.

    Args:
        service: lends the records.
        request: the parameters of the call.
    """

    def __init__(self, service: CannedService, request: dict[str, Any]) -> None:
        workload = Workload.parse(request["ConsumerARN"].split("/")[1])
        if workload is None:
            raise ValueError(f"no canned stream has {request['ConsumerARN']}")
        self._service = service
        self._workload = workload
        self._shard = int(request["ShardId"].rpartition("-")[2])
        self._page, self._place = _first_record(request["StartingPosition"], workload)
        self._frames = 0
        self._silent_until = 0.0

    def next_frame(self) -> bytes | None:
        """Return what to send now, or None while the shard has nothing to send."""
        self._frames += 1
        if self._frames == 1:
            return INITIAL_RESPONSE
        if self._page >= self._service.timeline.pages(self._workload, self._shard):
            return self._heartbeat()
        # Only the first page may be cut.
        places = range(self._place, self._workload.page_records)
        with self._service.page(self._shard, self._page, self._workload, places) as records:
            frame = event_frame([bytes(records)], self._last_number(self._page), _MILLIS_BEHIND)
        self._page, self._place = self._page + 1, 0
        return frame

    def _heartbeat(self) -> bytes | None:
        now = time.monotonic()
        if now < self._silent_until:
            return None
        self._silent_until = now + HEARTBEAT_SECONDS
        return event_frame([], self._last_number(max(0, self._page - 1)), 0)

    def _last_number(self, page: int) -> int:
        return int(sequence_number(self._shard, page, self._workload.page_records - 1))


def _first_record(position: dict[str, Any], workload: Workload) -> tuple[int, int]:
    """Return the page and the place of the record to begin with."""
    number = position.get("SequenceNumber")
    if number is None:
        return 0, 0
    place = place_of(number) + (position["Type"] != "AT_SEQUENCE_NUMBER")
    return page_of(number) + place // workload.page_records, place % workload.page_records
