"""Which payloads of Avro may be decoded: those that exhaust neither the stack nor the memory.

fastavro follows what it reads: where a schema contains itself, a few kilobytes crash the process,
and an array of items that take no bytes has any length. Most schemas allow for neither: for them a
multiplication is all that a payload costs. Payloads of others are walked through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import define, field

# A level takes up to a kilobyte of the stack, of which threads have one megabyte in places.
_DEEPEST: Final = 500
# About what a value takes in memory, without what is in it.
_BYTES: Final = {
    **dict.fromkeys(("null", "boolean", "enum", "union"), 0),
    **dict.fromkeys(("int", "long", "float", "double"), 32),
    **dict.fromkeys(("record", "error", "map"), 192),
}
_USUAL_BYTES: Final = 64
_LOGICAL_BYTES: Final = 112
_FIELD_BYTES: Final = 40
_SLOT_BYTES: Final = {"array": 8, "map": 112}
_LEAST: Final = {"null": 0, "float": 4, "double": 8}
# To make a decimal of a megabyte takes minutes: more than a few kilobytes are looked at.
_DECIMAL_GROWTH: Final = 2**16
_SPARE_DIGITS_BYTES: Final = 1024
_ENDLESS: Final = 2**60


@define(eq=False)
class _Type:
    """A type of a schema.

    Attributes:
        parts: the types of its fields or items, or its branches.
        size: how many bytes a fixed one has, or a decimal may have; ``None`` for any other.
        own: about how many bytes of memory a value takes without its parts.
        least: the fewest bytes that a value has in a payload.
        cost: about how many bytes of memory it takes at most, without the items of arrays and maps.
        growth: how many more it takes at most for each byte of the payload; without an end for what
            contains itself, and for items without bytes.
    """

    kind: str
    size: int | None = None
    own: int = 0
    parts: list[_Type] = field(factory=list)
    least: int = 0
    cost: int = 0
    growth: float = math.inf

    def measure(self) -> None:
        """Find what follows from the parts."""
        leasts, costs = [one.least for one in self.parts], [one.cost for one in self.parts]
        growth = max((one.growth for one in self.parts), default=1.0)
        if self.kind == "union":
            self.least, self.cost = 1 + min(leasts), max(costs)
        elif self.kind in _SLOT_BYTES:
            self.least, self.cost = 1, self.own
            least = leasts[0] + (self.kind == "map")
            growth = max(growth, (costs[0] + _SLOT_BYTES[self.kind]) / least if least else math.inf)
        elif self.kind in ("record", "error"):
            self.least, self.cost = sum(leasts), self.own + sum(costs)
        else:
            fixed = self.size if self.kind == "fixed" else None
            self.least = _LEAST.get(self.kind, 1) if fixed is None else fixed
            self.cost = self.own + (fixed or 0)
            growth = _DECIMAL_GROWTH if fixed is None and self.size is not None else growth
        self.cost, self.growth = min(self.cost, _ENDLESS), growth


def _type_of(schema: Any, names: Mapping[str, Any], known: dict[str, _Type]) -> _Type:
    if isinstance(schema, str):
        if schema in known:
            return known[schema]
        schema = names.get(schema, {"type": schema})
    if isinstance(schema, list):
        schema = {"type": "union", "branches": schema}
    kind, logical = schema["type"], schema.get("logicalType")
    if kind in names:
        return _type_of(kind, names, known)
    fields = [one["type"] for one in schema.get("fields", ())]
    own = _LOGICAL_BYTES if logical else _BYTES.get(kind, _USUAL_BYTES)
    made = _Type(kind, schema.get("size"), own + len(fields) * _FIELD_BYTES)
    if kind == "bytes" and logical == "decimal":
        made.size = schema["precision"] // 2 + _SPARE_DIGITS_BYTES
    if "name" in schema:
        known[schema["name"]] = made
    items = [schema[key] for key in ("items", "values") if key in schema]
    # Not a comprehension, which is a level more of the recursion.
    for part in (*fields, *schema.get("branches", ()), *items):
        made.parts.append(_type_of(part, names, known))
    made.measure()
    return made


def bounds_of(schema: Any, names: Mapping[str, Any], most_bytes: int) -> Callable[[bytes], None]:
    """Return what raises a ValueError for a payload whose value would be too deep or too large.

    Args:
        schema: as fastavro has parsed it.
        names: the schemas that it names.
        most_bytes: how many bytes of memory a value may take, about.

    Raises:
        ValueError: the schema has too many levels.
    """
    try:
        root = _type_of(schema, names, {})
    except RecursionError:
        raise ValueError("the schema has too many levels") from None

    def check(data: bytes) -> None:
        # Not "greater": nothing is greater than no bytes times infinity.
        if not root.cost + len(data) * root.growth <= most_bytes:
            try:
                _Walk(data, most_bytes).value(root, 0)
            except IndexError:
                raise ValueError("the payload ends inside a value: it has another schema") from None
            except RecursionError:
                raise ValueError("the value has too many levels") from None

    return check


@define(eq=False)
class _Walk:
    """The way through a payload.

    Args:
        left: how many bytes of memory the values may still take.
    """

    _data: bytes
    _left: int
    _at: int = 0

    def value(self, one: _Type, depth: int) -> None:
        """Walk through a value."""
        if depth > _DEEPEST:
            raise ValueError(f"the value is more than {_DEEPEST} levels deep")
        self._take(one.own)
        if one.kind in _SLOT_BYTES:
            self._items(one.kind, one.parts[0], depth)
        elif one.kind == "union":
            self.value(one.parts[self._count(len(one.parts) - 1)], depth + 1)
        elif one.kind in ("record", "error"):
            for part in one.parts:
                self.value(part, depth + 1)
        elif one.kind in ("bytes", "string"):
            self._text(one.size)
        elif one.kind in ("int", "long", "enum"):
            self._long()
        else:
            self._pass(one.least)

    def _items(self, kind: str, item: _Type, depth: int) -> None:
        while count := self._long():
            if count < 0:
                # The size of the block follows.
                count = -count
                self._long()
            self._take(count * _SLOT_BYTES[kind])
            if kind == "array" and not item.least and item.growth < math.inf:
                self._take(count * item.cost)
                continue
            for _ in range(count):
                if kind == "map":
                    self._text()
                self.value(item, depth + 1)

    def _text(self, most: int | None = None) -> None:
        length = self._count(len(self._data) if most is None else most)
        self._take(length)
        self._pass(length)

    def _count(self, most: int) -> int:
        count = self._long()
        if not 0 <= count <= most:
            raise ValueError(f"the payload has {count} where at most {most} is possible")
        return count

    def _long(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                value &= 2**64 - 1
                return (value >> 1) ^ -(value & 1)
        raise ValueError("the payload has a number of more than 64 bits")

    def _pass(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise IndexError

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError("the value would take too much memory: a larger max_bytes allows it")
