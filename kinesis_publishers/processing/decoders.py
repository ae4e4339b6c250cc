"""What makes the ``value`` of a record of its payload.

A decoder is any function of the payload. It raises what it likes for a payload that it cannot
decode: the error policy says what follows.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

import orjson
from attrs import define, field

from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.errors import SchemaError
from kinesis_publishers.model import Record
from kinesis_publishers.processing.avro_bounds import bounds_of

if TYPE_CHECKING:
    from google.protobuf.message import Message

Decoder: TypeAlias = Callable[[bytes], Any]

# The header that Glue's serializers write: version, compression, id of the schema's version.
_HEADER_VERSION: Final = 3
_UNCOMPRESSED, _ZLIB = 0, 5
_HEADER_BYTES: Final = 18
# What the registry answers to an id that a writer has made up.
_FAULTS_OF_RECORDS: Final = ("EntityNotFoundException", "InvalidInputException")
_REFUSED_SECONDS, _MOST_REFUSED = 60.0, 1000

#: How many bytes a payload may have unpacked.
MAX_DECODED_BYTES: Final = 32 * 1024 * 1024
# How many times as much memory its value may take.
_GROWTH: Final = 8
# What begins a value in JSON, and about the memory that this value takes.
_JSON_BYTES: Final = ((b",", 40), (b"[", 64), (b"{", 232))

_ZEROS: Final = b"0" * 19
_DIGITS_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
# 19 digits are more than 64 bits behind a minus only.
_BEYOND_64_BITS: Final = re.compile(rb"(?:^|[\s:,\[])(?:-[0-9]{19}|[0-9]{20})")


_WithValue: Any = namedtuple("_WithValue", (*Record._fields, "value"))  # type: ignore[misc]


class DecodedRecord(_WithValue, Record):  # type: ignore[misc]
    """A record with the value of its payload, which is a column of a data frame, too."""

    __slots__ = ()

    def __hash__(self) -> int:
        # A value may be a dict.
        return hash(self[:-1])


def decoded(record: Record, decode: Decoder) -> DecodedRecord:
    """Return ``record`` with its value; raises what ``decode`` raises."""
    return tuple.__new__(DecodedRecord, (*record, decode(record.data)))


def decoder_of(decode: str | Decoder | None) -> Decoder | None:
    """Return the decoder that is meant by a name, or by itself.

    Raises:
        ValueError: no decoder has the name.
        TypeError: it is neither a name nor can it be called.
        ModuleNotFoundError: the decoder needs a package that is not installed.
    """
    if decode is None or (callable(decode) and not iscoroutinefunction(decode)):
        return decode
    if not isinstance(decode, str):
        raise TypeError(f"decode must be a plain function of bytes or a name, not {decode!r}")
    if decode not in _BY_NAME:
        names = ", ".join(map(repr, _BY_NAME))
        raise ValueError(f"decode={decode!r}: expected one of {names}, or a function of bytes")
    return _BY_NAME[decode]()


def avro(
    schema: dict[str, Any] | list[Any] | str, *, max_bytes: int = MAX_DECODED_BYTES
) -> Decoder:
    """Return a decoder of single Avro records without a header (extra ``avro``).

    It raises a ``ValueError``, before it decodes anything, for a value that is more than 500 levels
    deep or takes too much memory.

    Args:
        schema: with which they were written, as JSON or parsed.
        max_bytes: a value may take about eight times as many bytes of memory.
    """
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise _missing(error, "avro") from None

    names: dict[str, dict[str, Any]] = {}
    given = orjson.loads(schema) if isinstance(schema, str) else schema
    parsed = fastavro.parse_schema(given, named_schemas=names)
    check = bounds_of(parsed, names, max_bytes * _GROWTH)

    def decode(data: bytes) -> Any:
        check(data)
        rest = BytesIO(data)
        value = fastavro.schemaless_reader(rest, parsed, None)
        if left := len(data) - rest.tell():
            raise ValueError(f"{left} bytes follow the Avro record: it has another schema")
        return value

    return decode


def protobuf(message: type[Message]) -> Decoder:
    """Return a decoder of Protobuf messages of a generated class."""

    def decode(data: bytes) -> Message:
        return message.FromString(data)

    return decode


def glue(
    client: Any,
    decoders: Mapping[str, Decoder] | None = None,
    *,
    max_bytes: int = MAX_DECODED_BYTES,
    clock: Clock | None = None,
) -> Decoder:
    """Return a decoder of what AWS Glue's Schema Registry serializers have written.

    A payload begins with the id of its schema, which is asked for once: ``glue:GetSchemaVersion``.
    Whoever writes a record chooses that id. An id that the registry does not have, or whose schema
    cannot be used, is therefore the record's fault, a ``ValueError``; the registry is asked again
    after a minute. ``SchemaError`` means that the registry could not be asked.

    Args:
        client: ``boto3.client("glue")``.
        decoders: for schemas of the formats that are given here, as ``PROTOBUF``, whose classes
            only the program has; AVRO (extra ``avro``) and JSON need none.
        max_bytes: how many bytes a compressed payload may have unpacked. A value of AVRO or JSON
            may take about eight times as many bytes of memory.
        clock: the source of time; the default is this machine's clock.
    """
    schemas = _GlueSchemas(client, dict(decoders or {}), max_bytes, clock or SystemClock())

    def decode(data: bytes) -> Any:
        if len(data) < _HEADER_BYTES or data[0] != _HEADER_VERSION:
            raise ValueError("the payload does not begin with a header of the Glue Schema Registry")
        compression, version_id = data[1], UUID(bytes=data[2:_HEADER_BYTES])
        body = data[_HEADER_BYTES:]
        if compression == _ZLIB:
            body = _decompressed(body, max_bytes)
        elif compression != _UNCOMPRESSED:
            raise ValueError(f"the payload is compressed in an unknown way ({compression})")
        return schemas.decoder_for(str(version_id))(body)

    return decode


@define(eq=False)
class _GlueSchemas:
    """The decoders of the schemas of a registry, by the ids of their versions."""

    _client: Any
    _own: Mapping[str, Decoder]
    _max_bytes: int
    _clock: Clock
    _known: dict[str, Decoder] = field(factory=dict, init=False)
    # Ids of no use, until when the registry is not asked for them, and why.
    _refused: dict[str, tuple[float, str]] = field(factory=dict, init=False)

    def decoder_for(self, version_id: str) -> Decoder:
        """Return what decodes payloads of a schema.

        Raises:
            ValueError: there is no such schema, or it cannot be used.
            SchemaError: the registry cannot be asked.
        """
        known = self._known.get(version_id)
        if known is None:
            now = self._clock.monotonic()
            until, why = self._refused.get(version_id, (now, ""))
            if now < until:
                raise ValueError(why)
            try:
                known = self._known[version_id] = self._load(version_id)
            except ValueError as error:
                if len(self._refused) == _MOST_REFUSED:
                    self._refused.clear()
                self._refused[version_id] = now + _REFUSED_SECONDS, str(error)
                raise
        return known

    def _load(self, version_id: str) -> Decoder:
        try:
            answer = self._client.get_schema_version(SchemaVersionId=version_id)
        except Exception as error:
            if _code_of(error) in _FAULTS_OF_RECORDS:
                raise ValueError(f"the registry has no schema {version_id} ({error})") from error
            raise SchemaError(
                f"The schema {version_id} could not be loaded: allow glue:GetSchemaVersion, and "
                f"check the connection to the registry ({error})"
            ) from error
        form = answer["DataFormat"]
        if form in self._own:
            return self._own[form]
        if form == "JSON":
            return partial(_bounded_json, self._max_bytes * _GROWTH)
        if form != "AVRO":
            raise ValueError(f"{version_id} is {form}: give glue(client, {{{form!r}: ...}})")
        try:
            return avro(answer["SchemaDefinition"], max_bytes=self._max_bytes)
        except ModuleNotFoundError as error:
            raise SchemaError(f"The schema {version_id} cannot be used: {error}") from error
        except Exception as error:
            # fastavro raises errors of many kinds.
            raise ValueError(f"the schema {version_id} cannot be used: {error}") from error


def _code_of(error: Exception) -> object:
    """Return AWS's code of an error of its client."""
    return getattr(error, "response", {}).get("Error", {}).get("Code")


def _decompressed(body: bytes, max_bytes: int) -> bytes:
    # A writer could let a few kilobytes become gigabytes.
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(body, max_bytes)
    if not unpacking.eof:
        raise ValueError(f"the payload is cut, or has more than {max_bytes:,} bytes unpacked")
    return data


def _json(data: bytes) -> Any:
    """Return what JSON holds, with its whole numbers as they are.

    orjson makes floats of numbers that have more than 64 bits.
    """
    value = orjson.loads(data)
    # From one test to the next fewer payloads remain, and each takes longer: of 19 digits in a row
    # 4 are in every fourth byte.
    if (
        _ZEROS[:4] in data[::4].translate(_DIGITS_AS_ZEROS)
        and _ZEROS in data.translate(_DIGITS_AS_ZEROS)
        and _BEYOND_64_BITS.search(data)
    ):
        return json.loads(data)
    return value


def _bounded_json(most_bytes: int, data: bytes) -> Any:
    if len(data) + sum(data.count(mark) * size for mark, size in _JSON_BYTES) > most_bytes:
        raise ValueError("the value would take too much memory: a larger max_bytes allows it")
    return _json(data)


def _missing(error: ModuleNotFoundError, extra: str) -> ModuleNotFoundError:
    text = f"{error.msg}: pip install 'kinesis-publishers[{extra}]'"
    return ModuleNotFoundError(text, name=error.name)


def _msgpack() -> Decoder:
    try:
        import msgpack
    except ModuleNotFoundError as error:
        raise _missing(error, "msgpack") from None

    unpack: Decoder = msgpack.unpackb
    return unpack


_BY_NAME: Final[Mapping[str, Callable[[], Decoder]]] = {
    "json": lambda: _json,
    "text": lambda: lambda data: data.decode(),
    "msgpack": _msgpack,
}
