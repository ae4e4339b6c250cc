"""Encodes a PutRecords call, and decodes the result of each record."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import pybase64

from kinesis_publishers.abc import PutAnswer, PutColumns
from kinesis_publishers.aws.calls import Answer, encoded
from kinesis_publishers.aws.errors import service_error
from kinesis_publishers.errors import ServiceError
from kinesis_publishers.model.native import native

OPERATION: Final = "PutRecords"
# Above this size, base64 and its signature cost Python more CPU than decoding an answer in CBOR.
_SMALL_BYTES: Final = 350


def are_small(records: PutColumns) -> bool:
    """Return whether a call costs less CPU in JSON than in CBOR."""
    return native() is None and sum(map(len, records.payloads)) < _SMALL_BYTES * len(records)


def body_of(records: PutColumns, is_cbor: bool, naming: dict[str, str]) -> bytes:
    """Return the body of a call, with the member that names its stream."""
    functions = native() if is_cbor and records.explicit_hash_keys is None else None
    if functions is not None:
        ((name, value),) = naming.items()
        columns = [*records.payloads], [*records.partition_keys]
        if (body := functions.put_request(*columns, name, value)) is not None:
            return body
    return encoded(members_of(records, is_cbor) | naming, is_cbor)


def members_of(records: PutColumns, is_cbor: bool) -> dict[str, Any]:
    """Return the records as members of a call; in JSON the payloads are in base64."""
    payloads: Iterable[bytes | str] = records.payloads
    if not is_cbor:
        payloads = map(pybase64.b64encode_as_string, records.payloads)
    columns = zip(payloads, records.partition_keys, strict=True)
    members = [
        {"Data": data} if key is None else {"Data": data, "PartitionKey": key}
        for data, key in columns
    ]
    for member, hash_key in zip(members, records.explicit_hash_keys or (), strict=False):
        if hash_key is not None:
            member["ExplicitHashKey"] = hash_key
    return {"Records": members}


def decode_answer(answer: Answer, count: int, stream: str) -> PutAnswer:
    """Return the results of the ``count`` records of a call; raises as :func:`answer_in`."""
    functions = native() if answer.is_cbor else None
    found = None if functions is None else functions.put_answer(answer.body)
    if found is None or len(found[0]) != count:
        return answer_in(answer.parsed(), count, stream)
    shard_ids, sequence_numbers = found
    return PutAnswer(shard_ids=shard_ids, sequence_numbers=sequence_numbers)


def answer_in(answer: Any, count: int, stream: str) -> PutAnswer:
    """Return the results in a parsed answer; raises one of ``UNREADABLE`` if they are none."""
    records = answer["Records"]
    if len(records) != count:
        raise ValueError(f"{len(records)} results for {count} records")
    # A record's own entry decides, regardless of FailedRecordCount.
    errors = {
        place: _refusal(one, stream) for place, one in enumerate(records) if one.get("ErrorCode")
    }
    return PutAnswer(
        shard_ids=_places(records, "ShardId", errors),
        sequence_numbers=_places(records, "SequenceNumber", errors),
        errors=errors,
    )


def _places(records: Sequence[Any], name: str, errors: Collection[int]) -> list[str | None]:
    """Return a member of each entry; ``None`` for records that were not written."""
    texts = [None if n in errors else one[name] for n, one in enumerate(records)]
    written = [one for n, one in enumerate(texts) if n not in errors] if errors else texts
    if not (set(map(type, written)) <= {str} and all(written)):
        raise TypeError(f"an entry without an ErrorCode has a {name} that is no text")
    return texts


def _refusal(entry: dict[str, str], stream: str) -> ServiceError:
    message = entry.get("ErrorMessage") or ""
    return service_error(entry["ErrorCode"], message, operation=OPERATION, where=stream)
