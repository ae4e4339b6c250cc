"""PutRecord and PutRecords."""

from __future__ import annotations

from collections.abc import Mapping

import pybase64
from attrs import Factory, define, field, frozen

from kinesis_publishers.testing.local_kinesis.answers import (
    ApiError,
    invalid_argument,
    serialization,
    validation,
)
from kinesis_publishers.testing.local_kinesis.faults import Scope
from kinesis_publishers.testing.local_kinesis.requests import Request, parse_decimal, violation
from kinesis_publishers.testing.local_kinesis.shard import (
    HASH_KEY_COUNT,
    Shard,
    hash_of_partition_key,
)
from kinesis_publishers.testing.local_kinesis.state import Members, Operation, ServiceState
from kinesis_publishers.testing.local_kinesis.stream import Stream

_LONGEST_KEY = 256


@frozen
class _Entry:
    """A record that may be stored: checked, its key hashed."""

    data_base64: str
    key: str | None
    size_bytes: int
    hash_key: int | None


def put_record(state: ServiceState, request: Request) -> Members:
    stream = state.find_readable(request)
    entry = _entry_of(state, stream, request.fields)
    if request.has("SequenceNumberForOrdering"):
        request.decimal("SequenceNumberForOrdering")
        if stream.is_auto_distributed:
            raise invalid_argument("SequenceNumberForOrdering must not be set with AUTO.")
    request.end_dry_run()
    shard, number = _Writer(state, stream, "PutRecord").store(entry)
    return {"ShardId": shard.shard_id, "SequenceNumber": str(number)} | _encryption(stream)


def put_records(state: ServiceState, request: Request) -> Members:
    """Store what can be stored: each entry succeeds or fails for itself, in the order given."""
    stream = state.find_readable(request)
    entries = _entries_in(state, stream, request)
    request.end_dry_run()
    writer = _Writer(state, stream, "PutRecords")
    results: list[dict[str, str]] = []
    failed = 0
    for entry in entries:
        try:
            shard, number = writer.store(entry)
        except ApiError as error:
            failed += 1
            results.append({"ErrorCode": error.code, "ErrorMessage": error.message})
        else:
            results.append({"SequenceNumber": str(number), "ShardId": shard.shard_id})
    return {"FailedRecordCount": failed, "Records": results} | _encryption(stream)


def _encryption(stream: Stream) -> dict[str, object]:
    # Not NONE: AWS says it of records and writes only where there is encryption.
    return {} if stream.key_id is None else {"EncryptionType": "KMS"}


@define
class _Writer:
    """Stores the records of one call; a scripted fault is taken once per shard and call."""

    _state: ServiceState
    _stream: Stream
    _operation: str
    _errors: dict[str, ApiError | None] = field(factory=dict)
    _now_ms: int = Factory(lambda self: self._state.now_ms(), takes_self=True)

    def store(self, entry: _Entry) -> tuple[Shard, int]:
        shard = self._stream.destination(entry.hash_key)
        error = self._fault_of(shard) or self._rate_error(shard, entry.size_bytes)
        if error is not None:
            raise error
        number = shard.append(
            entry.data_base64, entry.key, entry.size_bytes, self._now_ms, self._stream.key_id
        )
        return shard, number

    def _fault_of(self, shard: Shard) -> ApiError | None:
        shard_id = shard.shard_id
        if shard_id not in self._errors:
            scope = Scope(self._operation, self._stream.name, shard_id)
            fault = self._state.faults.take_inside(scope)
            self._errors[shard_id] = fault.to_error(self._operation) if fault else None
        return self._errors[shard_id]

    def _rate_error(self, shard: Shard, size_bytes: int) -> ApiError | None:
        limits, rates = self._state.limits, self._state.rates
        most_bytes, most_records = limits.write_bytes_per_second, limits.write_records_per_second
        if most_bytes is None and most_records is None:
            return None
        now = self._state.clock.monotonic()
        written_bytes = rates.window("write bytes", self._stream.name, shard.shard_id)
        written_records = rates.window("write records", self._stream.name, shard.shard_id)
        taken = written_bytes.total(now)
        # A single large record may exceed the rate; the shard then refuses until it is made up for.
        if (
            written_bytes.is_blocked(now)
            or (most_bytes is not None and taken and taken + size_bytes > most_bytes)
            or (most_records is not None and written_records.total(now) >= most_records)
        ):
            return self._stream.rate_exceeded(shard)
        written_bytes.take(now, size_bytes, most_bytes)
        written_records.take(now)
        return None


def _entries_in(state: ServiceState, stream: Stream, request: Request) -> list[_Entry]:
    """Return the entries; one that is malformed or too large fails the whole call."""
    items = request.items("Records")
    most = state.limits.put_records_max_entries
    if not items or (most is not None and len(items) > most):
        raise validation(
            "1 validation error detected: Value at 'records' failed to satisfy constraint: Member "
            f"must have length between 1 and {most}"
        )
    entries = [_entry_of(state, stream, item) for item in items]
    most_bytes = state.limits.put_records_max_bytes
    if most_bytes is not None and sum(entry.size_bytes for entry in entries) > most_bytes:
        raise invalid_argument(f"Records size exceeds {most_bytes} bytes")
    return entries


def _record_limit(state: ServiceState, stream: Stream) -> int | None:
    most = state.limits.record_max_bytes
    if most is None or stream.max_record_kib is None:
        return most
    return stream.max_record_kib * 1024


def _entry_of(state: ServiceState, stream: Stream, item: object) -> _Entry:
    if not isinstance(item, dict):
        raise serialization("An entry of Records is not an object.")
    fields: Mapping[str, object] = item
    data, key = fields.get("Data"), fields.get("PartitionKey")
    lacks_key = key is None and not stream.is_auto_distributed
    if lacks_key or not isinstance(data, str) or not isinstance(key, str | None):
        raise validation(
            "1 validation error detected: Value null at 'data' or 'partitionKey' failed to satisfy "
            "constraint: Member must not be null"
        )
    if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
        constraint = f"Member must have length between 1 and {_LONGEST_KEY}"
        raise violation("PartitionKey", key, constraint)
    size_bytes = _decoded_length(data) + len((key or "").encode())
    record_limit = _record_limit(state, stream)
    if record_limit is not None and size_bytes > record_limit:
        raise validation(
            "1 validation error detected: Value at 'data' failed to satisfy constraint: Member "
            f"must have length less than or equal to {record_limit}"
        )
    return _Entry(data, key, size_bytes, _hash_key_of(fields, key))


def _decoded_length(data: str) -> int:
    try:
        return len(pybase64.b64decode(data, validate=True))
    except ValueError as error:
        raise serialization(f"Data is not base64: {error}") from error


def _hash_key_of(fields: Mapping[str, object], key: str | None) -> int | None:
    explicit = fields.get("ExplicitHashKey")
    if explicit is None:
        return None if key is None else hash_of_partition_key(key)
    hash_key = parse_decimal("ExplicitHashKey", str(explicit))
    if hash_key >= HASH_KEY_COUNT:
        raise invalid_argument(
            f"Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. "
            f"Specified value was {hash_key}"
        )
    return hash_key


OPERATIONS: dict[str, Operation] = {"PutRecord": put_record, "PutRecords": put_records}
