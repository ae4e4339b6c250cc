"""What a scripted fault makes of the frame that it hits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.testing.local_kinesis.event_stream import with_bad_crc

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.faults import Fault

__all__ = ["pieces_of"]

# Enough to cut through the prelude and the headers of the smallest event.
_TRICKLE_PIECES = 20


def pieces_of(frame: bytes, fault: Fault | None) -> list[bytes]:
    """Return what is sent instead of a frame; between pieces there is the delay of the fault."""
    if fault is None:
        return [frame]
    if fault.kind == "bad_crc":
        return [with_bad_crc(frame)]
    if fault.kind == "trickle":
        size = -(-len(frame) // _TRICKLE_PIECES)
        return [frame[start : start + size] for start in range(0, len(frame), size)]
    if fault.kind in ("reset_mid_event", "truncated_frame"):
        return [frame[: len(frame) // 2]]
    return [frame]
