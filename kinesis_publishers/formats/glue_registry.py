"""Payloads with the header of AWS Glue's Schema Registry, as its serializers write them."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from attrs import frozen

from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.errors import SchemaError
from kinesis_publishers.formats.avro_records import avro_and_growth
from kinesis_publishers.formats.format import JSON, Decoder, Format, unpacked

# Version, compression, id of the schema's version (awslabs' AWSSchemaRegistryConstants).
_HEADER_VERSION: Final = 3
_UNCOMPRESSED, _ZLIB = 0, 5
_HEADER_BYTES: Final = 18
# The registry's answers to an id that a writer has made up.
_FAULTS_OF_RECORDS: Final = ("EntityNotFoundException", "InvalidInputException")
_REFUSED_SECONDS: Final = 60.0

# The memory of a value for each byte of its payload, as of [[],[],[]] in JSON.
_GROWTH: Final = 32
_CHECKS, _CHECK_SECONDS = 60, 0.5


@frozen
class GlueSchema:
    """A version of a schema that the registry has; :func:`glue_schema` returns it."""

    version_id: UUID
    data_format: str
    definition: str


def glue_schema(
    client: Any,
    name: str,
    definition: str,
    *,
    data_format: str = "AVRO",
    registry: str = "default-registry",
) -> GlueSchema:
    """Return a version of a schema that the registry has; register it there if it is new.

    It blocks: the registry may take some seconds to check the compatibility (BACKWARD). It needs
    ``glue:GetSchemaByDefinition``, ``RegisterSchemaVersion`` and ``CreateSchema``.

    Args:
        client: ``boto3.client("glue")``.
        definition: the Avro schema, the JSON Schema or the text of the ``.proto`` file.
        data_format: ``AVRO``, ``JSON`` or ``PROTOBUF``.

    Raises:
        SchemaError: it cannot be registered, or is incompatible with the version before.
    """
    where = {"SchemaId": {"SchemaName": name, "RegistryName": registry}}
    new = {"RegistryId": {"RegistryName": registry}, "Compatibility": "BACKWARD"}
    new |= {"SchemaName": name, "DataFormat": data_format, "SchemaDefinition": definition}
    try:
        found = _found(client, where | {"SchemaDefinition": definition}, new)
    except Exception as error:
        raise SchemaError(
            f"The schema {name} is not in the registry {registry} and cannot be registered: "
            f"create the registry, or allow what registers schemas ({error})"
        ) from error
    if found["Status"] != "AVAILABLE" or found["DataFormat"] != data_format:
        raise SchemaError(
            f"The version {found['SchemaVersionId']} of the schema {name} is {found['Status']}, "
            f"{found['DataFormat']}: it must be AVAILABLE (FAILURE is incompatible), {data_format}"
        )
    return GlueSchema(UUID(found["SchemaVersionId"]), data_format, definition)


def _found(client: Any, version: dict[str, Any], new: dict[str, Any]) -> Any:
    missing = client.exceptions.EntityNotFoundException
    try:
        client.get_schema_by_definition(**version)
    except missing:
        try:
            client.register_schema_version(**version)
        except missing:
            # Another producer may do the same at this moment.
            with suppress(client.exceptions.AlreadyExistsException):
                client.create_schema(**new)
            client.register_schema_version(**version)
    for _ in range(_CHECKS):
        found = client.get_schema_by_definition(**version)
        if found["Status"] != "PENDING":
            break
        threading.Event().wait(_CHECK_SECONDS)
    return found


def glue(
    client: Any,
    formats: Mapping[str, Format[Any]] | None = None,
    *,
    schema: GlueSchema | None = None,
    compresses: bool = False,
    max_bytes: int = 512 * 1024 * 1024,
    clock: Clock | None = None,
) -> Format[Any]:
    """Return the format of AWS Glue's Schema Registry serializers.

    A payload begins with the id of its schema, which is looked up once: ``glue:GetSchemaVersion``.
    The producer chooses that id. An id that the registry does not have, or whose schema cannot be
    used, is an error of the record, a ``ValueError``, and is looked up again after a minute.
    ``SchemaError`` means that the registry could not be queried, or that a package is missing.

    Args:
        client: ``boto3.client("glue")``.
        formats: by the format of a schema, as ``PROTOBUF``, whose classes only the program has;
            AVRO (extra ``avro``) and JSON need none. JSON is not validated.
        schema: with which values are encoded.
        compresses: whether payloads are written with zlib.
        max_bytes: the approximate memory that the value of a compressed payload may take. It limits
            the size of the unpacked payload: for AVRO by the schema, else to a 32nd.
        clock: the source of time; the default is this machine's clock.
    """
    return Format(
        _encoder(schema, formats or {}, compresses=compresses),
        _decoder(client, formats or {}, max_bytes, clock or SystemClock()),
    )


def _cannot_encode(_: object) -> bytes:
    raise SchemaError("glue(...) decodes only: give it schema=glue_schema(...), and formats")


def _encoder(
    schema: GlueSchema | None, formats: Mapping[str, Format[Any]], *, compresses: bool
) -> Any:
    if schema is None:
        return _cannot_encode
    form = _format_for(schema.data_format, schema.definition, formats)[0]
    has_index = schema.data_format == "PROTOBUF"
    compression = _ZLIB if compresses else _UNCOMPRESSED
    header = bytes([_HEADER_VERSION, compression]) + schema.version_id.bytes

    def encode(value: Any) -> bytes:
        body = form.encode(value)
        if has_index:
            body = _message_index(value.DESCRIPTOR) + body
        return header + (zlib.compress(body) if compresses else body)

    return encode


def _decoder(
    client: Any, formats: Mapping[str, Format[Any]], max_bytes: int, clock: Clock
) -> Decoder:
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
        kind = answer["DataFormat"]
        try:
            form, growth = _format_for(kind, answer["SchemaDefinition"], formats)
        except ModuleNotFoundError as error:
            raise SchemaError(f"The schema {version_id} cannot be used: {error}") from error
        except Exception as error:  # noqa: BLE001 - fastavro raises errors of many kinds
            return f"the schema {version_id}, which is {kind}, cannot be used: {error}"
        if kind == "PROTOBUF":
            return (lambda data: form.decode(_without_index(data))), growth
        return form.decode, growth

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
        if not compression:
            return decoder(body)
        most = max(1, int(max_bytes / growth))
        return decoder(unpacked(zlib.decompressobj, body, most, "glue(...)"))

    return decode


def _format_for(
    kind: str, definition: str, formats: Mapping[str, Format[Any]]
) -> tuple[Format[Any], float]:
    """Return a format, and the memory that a value may take for each byte of its payload."""
    if kind in formats:
        return formats[kind], _GROWTH
    if kind == "JSON":
        return JSON, _GROWTH
    if kind == "AVRO":
        return avro_and_growth(definition)
    raise ValueError(f"give glue(client, {{{kind!r}: ...}})")


@lru_cache(1000)
def _message_index(descriptor: Any) -> bytes:
    """Return what precedes a Protobuf message: its place among the sorted names of its file.

    The order is that of awslabs' ``MessageIndexFinder``.
    """
    from google.protobuf.wrappers_pb2 import UInt32Value

    names, left = [], list(descriptor.file.message_types_by_name.values())
    while left:
        names.append((one := left.pop()).full_name)
        left += one.nested_types
    index = sorted(names).index(descriptor.full_name)
    # A varint, without the tag of the field; Protobuf leaves out a zero.
    return UInt32Value(value=index).SerializeToString()[1:] or b"\0"


def _without_index(data: bytes) -> bytes:
    # Which message it is says the class that decodes it: its version of the file may have others.
    for end, byte in enumerate(data[:5], start=1):
        if byte < 0x80:
            return data[end:]
    raise ValueError("the payload does not begin with the index of a Protobuf message")
