"""Sequence numbers: 56 decimal digits that encode shard, order and time, as those of AWS do.

Layout in bits, from the top: version 2 | second of the shard's creation 36 | shard index modulo 16,
4 | position within the shard 64 | 8 zero for a record | second of the put 36 | shard index 32 |
version 4.
Positions grow, so numbers grow within a shard even when the wall clock steps back; a later
creation second puts every number of a child shard above all numbers of its parents.
"""

from __future__ import annotations

from attrs import define, field, frozen

_VERSION = 2
_POSITION_SHIFT = 80
_SECOND_SHIFT = 36
_INDEX_SHIFT = 4
_PREFIX_SHIFT = _POSITION_SHIFT + 64
_SECOND_MASK = (1 << 36) - 1
_INDEX_MASK = (1 << 32) - 1
_TIP_FLAG = 1 << 72
_LAST_POSITION = (1 << 63) - 1


def shard_id_of_index(index: int) -> str:
    return f"shardId-{index:012d}"


@frozen
class SequenceSpace:
    """The sequence numbers that one shard can have."""

    shard_index: int
    created_second: int
    _base: int = field(init=False, repr=False)

    @_base.default
    def _compute_base(self) -> int:
        nibble = self.shard_index & 0xF
        prefix = _VERSION << 40 | self.created_second << 4 | nibble
        return prefix << _PREFIX_SHIFT | self.shard_index << _INDEX_SHIFT | _VERSION

    def starting(self) -> int:
        """Return the shard's StartingSequenceNumber: below the number of every record."""
        return self.number(0, self.created_second)

    def ending(self, second: int) -> int:
        """Return the EndingSequenceNumber of a shard closed at ``second``: above every record."""
        return self.number(_LAST_POSITION, second)

    def tip(self, position: int, second: int) -> int:
        """Return a number above the record at ``position`` and below the one that will follow."""
        return self.number(position, second) | _TIP_FLAG

    def number(self, position: int, second: int) -> int:
        return self._base | position << _POSITION_SHIFT | (second & _SECOND_MASK) << _SECOND_SHIFT

    def owns(self, number: int) -> bool:
        """Tell whether ``number`` could have been given out by this shard."""
        return (
            number >> _PREFIX_SHIFT == self._base >> _PREFIX_SHIFT
            and number & 0xF == _VERSION
            and encoded_shard_index(number) == self.shard_index
        )


def encoded_shard_index(number: int) -> int:
    """Return the shard index that a well-formed number encodes."""
    return number >> _INDEX_SHIFT & _INDEX_MASK


@define
class CreationSeconds:
    """Gives each generation of shards a creation second above all earlier ones.

    Two reshards within one second would otherwise give a child numbers that do not follow its
    parent's; the encoded second then runs ahead of the clock, which no client can tell.
    """

    _last: int = 0

    def next(self, now_ms: int) -> int:
        self._last = max(now_ms // 1000, self._last + 1)
        return self._last
