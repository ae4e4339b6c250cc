"""The places of a shard that its processor may checkpoint at. Pure.

The rules are those of the KCL's ShardRecordProcessorCheckpointer.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import define, field

from kinesis_publishers.cli.multilang.protocol import CheckpointRequest
from kinesis_publishers.model import SequenceNumber, ShardProgress, StartingPosition

# A sequence number, and the number inside of an aggregate or 0.
_Place: TypeAlias = tuple[int, int]


class IllegalPlaceError(ValueError):
    """A processor has asked for a checkpoint that it may not have; the KCL refuses it, too."""


@define
class Places:
    """What was handed to a processor, and what it has checkpointed.

    Attributes:
        is_ended: whether the shard has ended, so that the farthest place is its end.
        is_end_written: whether the processor has checkpointed that end.
    """

    _reached: ShardProgress
    is_ended: bool = field(default=False, init=False)
    _largest: _Place | None = field(default=None, init=False)
    _last: SequenceNumber | None = field(init=False)
    is_end_written: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._last = self._reached.processed

    def note_handed(self, last: SequenceNumber, progress: ShardProgress) -> None:
        """Note the last record of a delivery, after which the shard has ``progress``."""
        self._largest, self._reached = _place(last), progress

    def note_end(self, progress: ShardProgress) -> None:
        """Note that all records were handed over, and the shard has ended."""
        self._reached, self.is_ended = progress, True

    def wanted(self, request: CheckpointRequest) -> ShardProgress | None:
        """Return the progress that a request means; ``None`` if that is known already.

        Without a number it is everything that was handed over. A number without one inside of its
        record means the first record of an aggregate, as in the KCL.

        Raises:
            IllegalPlaceError: the place is before the last checkpoint, or was not handed over.
        """
        if request.sequence_number is None:
            return None if self._largest is None and not self.is_ended else self._reached
        number, last = _parsed(request), self._last
        place = _place(number)
        if place == self._largest:
            return self._reached
        if last is not None and last in (number, number.whole):
            return None
        if self._largest is None or place > self._largest or (last and number < last):
            raise IllegalPlaceError(
                f"{number} is not between the last checkpoint, {last}, and the last record that "
                "was handed over"
            )
        return ShardProgress(position=StartingPosition.at(number))

    def note_written(self, progress: ShardProgress) -> None:
        """Note a checkpoint that the store has."""
        self._last = progress.processed or self._last
        self.is_end_written = progress.is_ended


def _parsed(request: CheckpointRequest) -> SequenceNumber:
    sub = 0 if request.sub_sequence_number is None else request.sub_sequence_number
    try:
        number = SequenceNumber(str(request.sequence_number), int(sub))
    except (TypeError, ValueError) as error:
        raise IllegalPlaceError(f"{request} has no place in a shard") from error
    if int(sub) < 0:
        raise IllegalPlaceError(f"{sub} is no place inside of a record")
    return number


def _place(number: SequenceNumber) -> _Place:
    return int(number.sequence_number), number.sub_sequence_number or 0
