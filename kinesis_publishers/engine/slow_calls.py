"""Reports slow calls of the application while they run."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from attrs import define, field

from kinesis_publishers.clock import Clock
from kinesis_publishers.events import CallbackDelayed, EventSink
from kinesis_publishers.model import RecordBatch, ShardKey

_LOGGER = logging.getLogger(__name__)

#: How often :meth:`SlowCalls.look` is called.
LOOK_SECONDS = 5.0


@define(eq=False)
class _Call:
    callback: str
    shard: ShardKey | None
    batch: RecordBatch | None
    taken: Callable[[], int]
    at: int
    since: float
    told_seconds: float = 0.0


@define(eq=False)
class SlowCalls:
    """Reports each call that takes longer than ``after_seconds``, unless that is 0.

    Calls for single records cost nothing: they are checked periodically. A call that blocks the
    event loop is reported when it has returned.
    """

    _after_seconds: float
    _clock: Clock
    _events: EventSink
    _calls: set[_Call] = field(factory=set, init=False)
    _looked_at: float = field(default=math.inf, init=False)

    @contextmanager
    def watching(
        self,
        callback: str,
        shard: ShardKey | None,
        batch: RecordBatch | None = None,
        taken: Callable[[], int] = int,
    ) -> Iterator[None]:
        """Run a call inside the context, or one for each record behind the first ``taken()``."""
        call = _Call(callback, shard, batch, taken, taken(), self._clock.monotonic())
        self._calls.add(call)
        try:
            yield
        finally:
            self._calls.discard(call)
            self._note_return(call)

    def look(self) -> None:
        """Report a slow call, and again whenever its duration has doubled."""
        now = self._looked_at = self._clock.monotonic()
        for call in self._calls:
            if (at := call.taken()) != call.at:
                if call.told_seconds:
                    self._note_return(call)
                call.at, call.since, call.told_seconds = at, now, 0.0
            seconds = now - call.since
            if seconds >= (2 * call.told_seconds or self._after_seconds) > 0:
                call.told_seconds = seconds
                self._report(call)

    def _note_return(self, call: _Call) -> None:
        now = self._clock.monotonic()
        if not 0 < self._after_seconds <= now - call.since:
            return
        advice = ""
        if now - self._looked_at > 2 * LOOK_SECONDS:
            call.at = call.taken()
            advice = " It has blocked the event loop: let asyncio.to_thread run what blocks."
        elif call.taken() > call.at + 1 and not call.told_seconds:
            # Several calls have returned since the last look: none is known to be slow.
            return
        self._report(call, advice, has_returned=True)

    def _report(self, call: _Call, advice: str = "", *, has_returned: bool = False) -> None:
        part = call.batch and call.batch.slice(call.at, call.at + 1)
        event = CallbackDelayed(
            shard=call.shard,
            callback=call.callback,
            record=part.first_sequence_number if part else None,
            seconds=self._clock.monotonic() - call.since,
            has_returned=has_returned,
        )
        _LOGGER.warning("%s%s", event, advice, extra=event.fields())
        self._events(event)


def name_of(callback: object) -> str:
    """Return the name of a function; the ``repr`` of a partial would show its arguments."""
    while isinstance(callback, partial):
        callback = callback.func
    named = callback if hasattr(callback, "__qualname__") else type(callback)
    return f"{named.__module__}.{named.__qualname__}"
