"""What makes the ``value`` of a record of its payload.

A decoder is any function of the payload. It raises what it likes for a payload that it cannot
decode: the error policy says what follows.
"""

from __future__ import annotations

import zlib
from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import cache
from inspect import iscoroutinefunction
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

import orjson

from kinesis_publishers.errors import SchemaError
from kinesis_publishers.model import Record

if TYPE_CHECKING:
    from google.protobuf.message import Message

Decoder: TypeAlias = Callable[[bytes], Any]

# The header that Glue's serializers write: version, compression, id of the schema's version.
_HEADER_VERSION: Final = 3
_UNCOMPRESSED, _ZLIB = 0, 5
_HEADER_BYTES: Final = 18
_LONGEST_BYTES: Final = 128 * 1024 * 1024


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


def avro(schema: dict[str, Any] | list[Any] | str) -> Decoder:
    """Return a decoder of single Avro records without a header (extra ``avro``).

    Args:
        schema: with which they were written, as JSON or parsed.
    """
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise _missing(error, "avro") from None

    parsed = fastavro.parse_schema(orjson.loads(schema) if isinstance(schema, str) else schema)

    def decode(data: bytes) -> Any:
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


def glue(client: Any, decoders: Mapping[str, Decoder] | None = None) -> Decoder:
    """Return a decoder of what AWS Glue's Schema Registry serializers have written.

    A payload begins with the id of its schema, which is asked for once: ``glue:GetSchemaVersion``.

    Args:
        client: ``boto3.client("glue")``.
        decoders: for schemas of the formats that are given here, as ``PROTOBUF``, whose classes
            only the program has; AVRO (extra ``avro``) and JSON need none.
    """
    own = dict(decoders or {})

    @cache
    def decoder_for(version_id: str) -> Decoder:
        try:
            answer = client.get_schema_version(SchemaVersionId=version_id)
        except Exception as error:
            # Not a fault of the record: nothing is put aside for it.
            raise SchemaError(
                f"The schema {version_id} could not be loaded: allow glue:GetSchemaVersion, and "
                f"check that the registry has it ({error})"
            ) from error
        form = answer["DataFormat"]
        if form in own:
            return own[form]
        if form == "JSON":
            return orjson.loads
        if form != "AVRO":
            raise SchemaError(f"{version_id} is {form}: give glue(client, {{{form!r}: ...}})")
        try:
            return avro(answer["SchemaDefinition"])
        except Exception as error:
            # fastavro raises errors of many kinds, and it may be missing.
            raise SchemaError(f"The schema {version_id} cannot be used: {error}") from error

    def decode(data: bytes) -> Any:
        if len(data) < _HEADER_BYTES or data[0] != _HEADER_VERSION:
            raise ValueError("the payload does not begin with a header of the Glue Schema Registry")
        compression, version_id = data[1], UUID(bytes=data[2:_HEADER_BYTES])
        body = data[_HEADER_BYTES:]
        if compression == _ZLIB:
            body = _decompressed(body)
        elif compression != _UNCOMPRESSED:
            raise ValueError(f"the payload is compressed in an unknown way ({compression})")
        return decoder_for(str(version_id))(body)

    return decode


def _decompressed(body: bytes) -> bytes:
    # A writer could let a few kilobytes become gigabytes.
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(body, _LONGEST_BYTES)
    if not unpacking.eof:
        raise ValueError(f"the payload is cut, or has more than {_LONGEST_BYTES:,} bytes unpacked")
    return data


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
    "json": lambda: orjson.loads,
    "text": lambda: lambda data: data.decode(),
    "msgpack": _msgpack,
}
