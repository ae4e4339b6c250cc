"""Single Avro records; what a payload may become is bounded before it is decoded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from io import BytesIO
from typing import IO, Any, Final

import orjson
from attrs import define, field

from kinesis_publishers.formats.format import Format, imported

# A decimal of a megabyte takes minutes: decimals have a reader of their own.
_DECIMAL: Final = "kinesis-publishers-decimal"
_SPARE_BYTES: Final = 1024
# A number of 64 bits has up to ten bytes, of which each holds seven.
_MOST_NUMBER_BITS: Final = 70
# The fewest bytes of a value in a payload, and its approximate memory.
_LEAST: Final = {"null": 0, "float": 4, "double": 8, "record": 0, "error": 0}
_MEMORY: Final = {"null": 0, "boolean": 0, "enum": 0, "union": 0, "int": 32, "long": 32}
_USUAL_MEMORY, _DICT_MEMORY, _KEY_MEMORY, _ENTRY_MEMORY, _SLOT_MEMORY = 64, 192, 40, 112, 8
_CONTAINS_ITSELF: Final = (1, 256, 0.0)


def avro(schema: dict[str, Any] | list[Any] | str) -> Format[Any]:
    """Return the format of single Avro records without a header (extra ``avro``).

    A value that is nested too deeply, if the schema contains itself, is a ``RecursionError``. A
    value with fields that the schema lacks cannot be encoded.

    Args:
        schema: with which they are written, as JSON or parsed.

    Raises:
        ValueError: the schema has arrays whose items take no bytes: values would have no bound.
    """
    return avro_and_growth(schema)[0]


def avro_and_growth(schema: dict[str, Any] | list[Any] | str) -> tuple[Format[Any], float]:
    """Return the format, and the memory that a value may take for each byte of its payload."""
    fastavro = imported("fastavro", extra="avro")
    names: dict[str, dict[str, Any]] = {}
    given = orjson.loads(schema) if isinstance(schema, str) else schema
    written = fastavro.parse_schema(given)
    parsed = fastavro.parse_schema(with_bounded_decimals(given), named_schemas=names)
    bounds = Bounds(names)
    growth = bounds.of(parsed)[2]
    if growth == math.inf:
        raise ValueError("the schema has arrays whose items take no bytes: any payload may be huge")
    is_recursive = bounds.is_recursive

    def encode(value: Any) -> bytes:
        data = BytesIO()
        # Otherwise fields that the schema lacks would be left out.
        fastavro.schemaless_writer(data, written, value, strict_allow_default=True)
        return data.getvalue()

    def decode(data: bytes) -> Any:
        rest = BytesIO(data)
        value = readers()[is_recursive](rest, parsed, None)
        if left := len(data) - rest.tell():
            raise ValueError(f"{left} bytes follow the Avro record: it has another schema")
        return value

    return Format(encode, decode), growth


@define
class Bounds:
    """Follows the types of a schema, with the schemas that have names as fastavro parsed them.

    If one ``is_recursive``, it contains itself, and the payload decides how deep a value is.
    """

    _names: Mapping[str, Any]
    is_recursive: bool = False
    _known: dict[str, tuple[int, int, float]] = field(factory=dict, init=False)

    def of(self, schema: Any) -> tuple[int, int, float]:
        """Return the limits on the values of a schema that fastavro parsed.

        Returns:
            The fewest bytes of a payload; the approximate memory of a value without the items of
            arrays and maps; and the approximate maximum of further memory for each byte of the
            payload, which is infinite where items have no bytes.
        """
        if isinstance(schema, str) and schema in self._known:
            self.is_recursive |= self._known[schema] is _CONTAINS_ITSELF
            return self._known[schema]
        if isinstance(schema, str):
            schema = self._names.get(schema, {"type": schema})
        if isinstance(schema, list):
            schema = {"type": "union", "branches": schema}
        kind, name = schema["type"], schema.get("name", "")
        self._known[name] = _CONTAINS_ITSELF
        inner = [one["type"] for one in schema.get("fields", ())] + schema.get("branches", [])
        inner += [schema[key] for key in ("items", "values") if key in schema]
        parts = [self.of(one) for one in inner]
        least, memory = _LEAST.get(kind, 1), _MEMORY.get(kind, _USUAL_MEMORY)
        growth = max((one[2] for one in parts), default=1.0)
        if kind == "union":
            # The branch that takes the most memory for its bytes.
            least, memory, _ = max(parts, key=lambda one: (one[1] + _SLOT_MEMORY) / (one[0] + 1))
            least += 1
        elif kind in ("array", "map"):
            key_bytes, slot = (1, _ENTRY_MEMORY) if kind == "map" else (0, _SLOT_MEMORY)
            item_bytes = parts[0][0] + key_bytes
            growth = max(growth, (parts[0][1] + slot) / item_bytes if item_bytes else math.inf)
        elif kind == "fixed":
            least, memory = schema["size"], memory + schema["size"]
        elif kind in ("record", "error"):
            least = sum(one[0] for one in parts)
            memory = _DICT_MEMORY + sum(one[1] + _KEY_MEMORY for one in parts)
        self._known[name] = found = least, min(memory, 2**60), growth
        return found


def with_bounded_decimals(schema: Any) -> Any:
    """Return a schema whose decimals are read by :func:`bound_decimals`."""
    if isinstance(schema, list):
        return [with_bounded_decimals(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: with_bounded_decimals(one) for key, one in schema.items()}
    is_decimal = (made.get("type"), made.get("logicalType")) == ("bytes", "decimal")
    return made | {"logicalType": _DECIMAL} if is_decimal else made


@cache
def readers() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return fastavro's fast reader, and a reader that bounds numbers and detects deep recursion.

    Both are ready for what :func:`with_bounded_decimals` returns, in any process.
    """
    import fastavro
    from fastavro import _read_py
    from fastavro.io.binary_decoder import BinaryDecoder

    logical: dict[str, Callable[..., Any]] = fastavro.read.LOGICAL_READERS
    read = logical["bytes-decimal"]

    def read_bounded(data: bytes, schema: Any, *more: Any) -> Any:
        if len(data) > schema["precision"] // 2 + _SPARE_BYTES:
            raise ValueError(f"a decimal has {len(data):,} bytes, more than its precision needs")
        return read(data, schema, *more)

    logical[f"bytes-{_DECIMAL}"] = read_bounded

    read_data: Callable[..., Any] = _read_py.read_data

    class BoundedNumbers(BinaryDecoder):
        # fastavro's own makes numbers of any length, in a time that grows with its square.
        def read_long(self) -> int:
            number = 0
            for shift in range(0, _MOST_NUMBER_BITS, 7):
                byte: bytes = self.fo.read(1)  # codespell:ignore fo
                if not byte:
                    raise EOFError
                number |= (byte[0] & 0x7F) << shift
                if byte < b"\x80":
                    return (number >> 1) ^ -(number & 1)
            raise ValueError("a number has more than 64 bits")

        read_int = read_long

    decoder: Callable[..., Any] = BoundedNumbers

    def read_deep(payload: IO[bytes], schema: Any, _: None) -> Any:
        names: dict[str, Any] = {"writer": {}, "reader": {}}
        schema = fastavro.parse_schema(schema, named_schemas=names["writer"])
        return read_data(decoder(payload), schema, names)

    return fastavro.schemaless_reader, read_deep
