"""Decoders, which make the ``value`` of a record from its payload.

A decoder is any function of the payload. For one that it cannot decode, it may raise any exception:
the error policy says what follows.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from inspect import iscoroutinefunction
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

import orjson

from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.errors import SchemaError
from kinesis_publishers.model import Record
from kinesis_publishers.processing.avro_bounds import Bounds, readers, with_bounded_decimals

if TYPE_CHECKING:
    from google.protobuf.message import Message

Decoder: TypeAlias = Callable[[bytes], Any]

# The header that Glue's serializers write: version, compression, id of the schema's version.
_HEADER_VERSION: Final = 3
_UNCOMPRESSED, _ZLIB = 0, 5
_HEADER_BYTES: Final = 18
# The registry's answers to an id that a writer has made up.
_FAULTS_OF_RECORDS: Final = ("EntityNotFoundException", "InvalidInputException")
_REFUSED_SECONDS: Final = 60.0

# The memory of a value for each byte of its payload, as of [[],[],[]] in JSON.
_GROWTH: Final = 32

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
    """Return ``record`` with its value."""
    return tuple.__new__(DecodedRecord, (*record, decode(record.data)))


def decoder_of(decode: str | Decoder | None) -> Decoder | None:
    """Return the decoder of a name, or the given one; raise if there is none."""
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

    A value that is nested too deeply, if the schema contains itself, is a ``RecursionError``.

    Args:
        schema: with which they were written, as JSON or parsed.

    Raises:
        ValueError: the schema has arrays whose items take no bytes: values would have no bound.
    """
    return _avro_and_growth(schema)[0]


def _avro_and_growth(schema: dict[str, Any] | list[Any] | str) -> tuple[Decoder, float]:
    fastavro = imported("fastavro", extra="avro")
    names: dict[str, dict[str, Any]] = {}
    given = orjson.loads(schema) if isinstance(schema, str) else schema
    fastavro.parse_schema(given)
    parsed = fastavro.parse_schema(with_bounded_decimals(given), named_schemas=names)
    bounds = Bounds(names)
    growth = bounds.of(parsed)[2]
    if growth == math.inf:
        raise ValueError("the schema has arrays whose items take no bytes: any payload may be huge")
    is_recursive = bounds.is_recursive

    def decode(data: bytes) -> Any:
        rest = BytesIO(data)
        value = readers()[is_recursive](rest, parsed, None)
        if left := len(data) - rest.tell():
            raise ValueError(f"{left} bytes follow the Avro record: it has another schema")
        return value

    return decode, growth


def protobuf(message: type[Message]) -> Decoder:
    """Return a decoder of Protobuf messages of a generated class."""
    return message.FromString


def glue(
    client: Any,
    decoders: Mapping[str, Decoder] | None = None,
    *,
    max_bytes: int = 512 * 1024 * 1024,
    clock: Clock | None = None,
) -> Decoder:
    """Return a decoder of what AWS Glue's Schema Registry serializers have written.

    A payload begins with the id of its schema, which is looked up once: ``glue:GetSchemaVersion``.
    The producer chooses that id. An id that the registry does not have, or whose schema cannot be
    used, is an error of the record, a ``ValueError``, and is looked up again after a minute.
    ``SchemaError`` means that the registry could not be queried, or that a package is missing.

    Args:
        client: ``boto3.client("glue")``.
        decoders: by the format of a schema, as ``PROTOBUF``, whose classes only the program has;
            AVRO (extra ``avro``) and JSON need none.
        max_bytes: the approximate memory that the value of a compressed payload may take. It limits
            the size of the unpacked payload: for AVRO by the schema, else to a 32nd.
        clock: the source of time; the default is this machine's clock.
    """
    clock = clock or SystemClock()
    known: dict[str, tuple[Decoder, float]] = {}

    @lru_cache(1000)
    def load(version_id: str, _: int) -> tuple[Decoder, float] | str:
        try:
            answer = client.get_schema_version(SchemaVersionId=version_id)
        except Exception as error:
            reply = getattr(error, "response", {})
            if reply.get("Error", {}).get("Code") in _FAULTS_OF_RECORDS:
                return f"the registry has no schema {version_id} ({error})"
            raise SchemaError(
                f"The schema {version_id} could not be loaded: allow glue:GetSchemaVersion, and "
                f"check the connection to the registry ({error})"
            ) from error
        form = answer["DataFormat"]
        try:
            return _decoder_for(form, answer["SchemaDefinition"], decoders or {})
        except ModuleNotFoundError as error:
            raise SchemaError(f"The schema {version_id} cannot be used: {error}") from error
        except Exception as error:  # noqa: BLE001 - fastavro raises errors of many kinds
            return f"the schema {version_id}, which is {form}, cannot be used: {error}"

    def decode(data: bytes) -> Any:
        if len(data) < _HEADER_BYTES or data[0] != _HEADER_VERSION:
            raise ValueError("the payload does not begin with a header of the Glue Schema Registry")
        compression, version_id = data[1], str(UUID(bytes=data[2:_HEADER_BYTES]))
        if compression not in (_UNCOMPRESSED, _ZLIB):
            raise ValueError(f"the payload is compressed in an unknown way ({compression})")
        if version_id not in known:
            found = load(version_id, int(clock.monotonic() // _REFUSED_SECONDS))
            if isinstance(found, str):
                raise ValueError(found)
            known[version_id] = found
        decoder, growth = known[version_id]
        body = data[_HEADER_BYTES:]
        # To zlib 0 bytes are no bound.
        most = max(1, int(max_bytes / growth))
        return decoder(_decompressed(body, most) if compression else body)

    return decode


def _decoder_for(
    form: str, definition: str, decoders: Mapping[str, Decoder]
) -> tuple[Decoder, float]:
    """Return a decoder, and the memory that a value may take for each byte of its payload."""
    if form in decoders:
        return decoders[form], _GROWTH
    if form == "JSON":
        return _json, _GROWTH
    if form == "AVRO":
        return _avro_and_growth(definition)
    raise ValueError(f"give glue(client, {{{form!r}: ...}})")


def _decompressed(body: bytes, max_bytes: int) -> bytes:
    # A writer could let a few kilobytes become gigabytes.
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(body, max_bytes)
    if not unpacking.eof:
        raise ValueError(
            f"the payload is cut, or has more than {max_bytes:,} bytes unpacked: a larger "
            "max_bytes of glue(...) allows more"
        )
    return data


def _json(data: bytes) -> Any:
    """Return what JSON holds; orjson alone makes floats of whole numbers beyond 64 bits."""
    value = orjson.loads(data)
    # Each test is slower and leaves fewer payloads; of 19 digits, 4 in a row are fourth bytes.
    if (
        _ZEROS[:4] in data[::4].translate(_DIGITS_AS_ZEROS)
        and _ZEROS in data.translate(_DIGITS_AS_ZEROS)
        and _BEYOND_64_BITS.search(data)
    ):
        return json.loads(data)
    return value


def imported(name: str, *, extra: str) -> Any:
    """Return a module; ``ModuleNotFoundError`` names the extra that has it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        text = f"{error.msg}: pip install 'kinesis-publishers[{extra}]'"
        raise ModuleNotFoundError(text, name=error.name) from None


_BY_NAME: Final[Mapping[str, Callable[[], Decoder]]] = {
    "json": lambda: _json,
    "text": lambda: lambda data: data.decode(),
    "msgpack": lambda: imported("msgpack", extra="msgpack").unpackb,
}
