"""The rows of the Kinesis Client Library's lease table, as version 3.5 reads and writes them. Pure.

The attributes, and the conditions of writes, are those of its DynamoDBLeaseSerializer,
DynamoDBMultiStreamLeaseSerializer and DynamoDBLeaseRefresher.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final

from kinesis_publishers.checkpoints.dynamodb_table import (
    Item,
    Values,
    condition_of,
    item_of,
    update_of,
    values_of,
)
from kinesis_publishers.checkpoints.stored_form import fields_of, lease_of_fields, progress_of
from kinesis_publishers.checkpoints.versions import Attempt
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    Lease,
    PositionType,
    SequenceNumber,
    ShardProgress,
    StartingPosition,
    StreamIdentity,
)
from kinesis_publishers.model.checkpoints import KCL_WRITER

KEY: Final = "leaseKey"
# By field of a lease. A field without a value has no attribute.
_ATTRIBUTES: Final = {
    "owner": "leaseOwner",
    "leaving": "checkpointOwner",
    "switches": "ownerSwitchesSinceCheckpoint",
    "parents": "parentShardId",
    "children": "childShardIds",
}
# Our own attributes begin with kp. The KCL's updates leave them as they are: the writer holds while
# kpCounter is the leaseCounter, and the position in kpState while it is that of `checkpoint`.
STATE: Final = "kpState"
_UNASKED: Final = " AND (attribute_not_exists(checkpointOwner) OR checkpointOwner = kpLeaving)"
_LEASE: Final = "LEASE"
_SHARD_END: Final = "SHARD_END"
_METRICS: Final = "WORKER_METRIC_STATS"
# A worker of the KCL writes its row every 30 seconds, and counts as gone after two.
_SILENT_SECONDS: Final = 60
_LATEST: Final = PositionType.LATEST.value
_AT_TIMESTAMP: Final = PositionType.AT_TIMESTAMP.value

# A pair (number, sub-sequence number) is the last processed record. The KCL reads AT the number and
# drops everything up to the pair; a record outside of an aggregate counts as number 0. A whole
# aggregate is the largest number that every language of the KCL's daemon reads exactly, and that no
# aggregate reaches. Before all of them is -1.
_WHOLE: Final = 2**31 - 1
_NOTHING: Final = -1

_BYTES_PER_KB: Final = 1024
# Python's calendar ends with the year 9999.
_LAST_SECOND: Final = 253_402_300_799


def stream_key(identity: StreamIdentity) -> str:
    """Return the key of a stream in a table of several: account, name, and creation time."""
    account = identity.arn.split(":")[4]
    return f"{account}:{identity.name}:{int(identity.created_at.timestamp())}"


def key_in_table(identity: StreamIdentity, known: Collection[str]) -> str:
    """Return the one of the ``known`` keys that means a stream; its own, if there is none.

    A different creation time belongs to an earlier stream of this name, or was configured by hand.
    The latest one counts.
    """
    own = stream_key(identity)
    name = own.rpartition(":")[0]
    of_name = [one for one in known if one.rpartition(":")[0] == name]
    return own if own in of_name or not of_name else max(of_name, key=_creation)


def created_at(key: str | None, identity: StreamIdentity) -> datetime:
    """Return when the stream of a key was created; ``identity`` is the current one of its name."""
    if key is None or key == stream_key(identity):
        return identity.created_at
    return datetime.fromtimestamp(min(_creation(key), _LAST_SECOND), UTC)


def _creation(key: str) -> int:
    return int(key.rpartition(":")[2])


def split_key(lease_key: str) -> tuple[str | None, str]:
    """Return the stream of a row, ``None`` in a table of one stream, and the id of its shard."""
    parts = re.fullmatch(r"([0-9]+:[^:]+:[0-9]+):([^:]+)", lease_key)
    return (None, lease_key) if parts is None else (parts[1], parts[2])


def is_lease(item: Item) -> bool:
    """Return whether a row is a lease; the KCL keeps other things in the same table."""
    return item.get("entityType") in (None, {"S": _LEASE})


def version_of(values: Values) -> CheckpointVersion:
    """Return the version of a row, with an invented writer if the KCL has written it last."""
    # The KCL requests a hand-over without a new counter: that makes another version, too.
    owners = [values.get("leaseOwner"), values.get("checkpointOwner")]
    return CheckpointVersion(
        number=int(values["leaseCounter"]),
        writer=values["kpWriter"] if _is_ours(values) else KCL_WRITER + json.dumps(owners),
    )


def written_at(values: Values) -> str | None:
    """Return when a row was written, if that was not the KCL."""
    return json.loads(values[STATE]).get("written_at") if _is_ours(values) else None


def _is_ours(values: Values) -> bool:
    is_last = values.get("kpCounter") == values["leaseCounter"]
    return is_last and values.get("checkpointOwner") in (None, values.get("kpLeaving"))


def progress_in(
    values: Values, state: Mapping[str, Any], beginning: Callable[[PositionType], StartingPosition]
) -> ShardProgress:
    """Return how far a shard has been read; ``beginning`` is called for LATEST and AT_TIMESTAMP."""
    text, sub = values["checkpoint"], values.get("checkpointSubSequenceNumber", 0)
    if text == {"NULL": True}:
        # zio-kinesis, before its first checkpoint.
        return ShardProgress(position=StartingPosition.trim_horizon())
    if "position" in state:
        ours = progress_of(state)
        instant = ours.position.timestamp
        if (text, sub) in {checkpoint_of(ours, None), checkpoint_of(ours, instant)}:
            return ours
    if text in (_SHARD_END, PositionType.TRIM_HORIZON.value):
        return ShardProgress(position=StartingPosition.trim_horizon(), is_ended=text == _SHARD_END)
    if text in (_LATEST, _AT_TIMESTAMP):
        return ShardProgress(position=beginning(PositionType(text)))
    if sub >= _WHOLE:
        return ShardProgress(position=StartingPosition.after(SequenceNumber(text)))
    number = SequenceNumber(text, None if sub < 0 else sub)
    return ShardProgress(position=StartingPosition.at(number))


def checkpoint_of(progress: ShardProgress, initial: datetime | None) -> tuple[str, int]:
    """Return ``checkpoint`` and ``checkpointSubSequenceNumber``."""
    position, number = progress.position, progress.position.sequence_number
    if progress.is_ended:
        return _SHARD_END, 0
    if number is None:
        # A KCL that takes the shard over reads AT_TIMESTAMP at the instant in its configuration,
        # and fails if that says LATEST: a pinned LATEST is written as LATEST.
        is_pinned = position.timestamp is not None and position.timestamp != initial
        return (_LATEST if is_pinned else position.type.value), 0
    if number.sub_sequence_number is not None:
        return number.sequence_number, number.sub_sequence_number
    is_after = position.type is PositionType.AFTER_SEQUENCE_NUMBER
    return number.sequence_number, _WHOLE if is_after else _NOTHING


def lease_in(values: Values, state: Mapping[str, Any]) -> Lease | None:
    is_ours = _is_ours(values)
    if is_ours and "settle_seconds" not in state:
        return None
    fields = {field: values[name] for field, name in _ATTRIBUTES.items() if name in values}
    if first := values.get("startingHashKey"):
        fields["hash_range"] = (first, values["endingHashKey"])
    if (throughput := values.get("throughputKBps")) is not None:
        fields["bytes_per_second"] = round(float(throughput) * _BYTES_PER_KB)
    if is_ours:
        fields["settle_seconds"] = state["settle_seconds"]
    # It stays true after a worker of the KCL has written the row.
    if (consumer_arn := state.get("consumer_arn")) is not None:
        fields["consumer_arn"] = consumer_arn
    return lease_of_fields(fields)


def row_update(
    key: str, attempt: Attempt, checkpoint: Checkpoint, state: Values, initial: datetime | None
) -> dict[str, Any]:
    """Return the parameters of an UpdateItem that writes ``checkpoint`` on its condition.

    ``state`` is from :func:`row_state`, and ``initial`` the instant of AT_TIMESTAMP in our
    configuration and in the KCL's.
    """
    lease = checkpoint.lease or Lease()
    if lease.leaving is not None and _owners_of(attempt.expected) == {
        "leaseOwner": lease.leaving,
        "checkpointOwner": None,
    }:
        return _request_to_kcl(key, lease)
    version = attempt.version
    text, sub = checkpoint_of(checkpoint.progress, initial)
    changes = _lease_changes(lease) | {
        "leaseCounter": version.number,
        "checkpoint": text,
        "checkpointSubSequenceNumber": sub,
        "kpCounter": version.number,
        "kpWriter": version.writer,
        STATE: json.dumps(state, separators=(",", ":")),
    }
    if attempt.expected is None:
        changes["entityType"] = _LEASE
    stream, shard_id = split_key(key)
    if stream is not None:
        changes |= {"streamName": stream, "shardId": shard_id}
    if lease.switches == 0:
        # The new owner has made a checkpoint: the one that the former prepared is obsolete.
        for name in ("", "SubSequenceNumber", "State"):
            changes[f"pendingCheckpoint{name}"] = None
    request, condition = update_of({KEY: key}, changes), row_condition(key, attempt)
    request["ExpressionAttributeValues"] |= condition.pop("ExpressionAttributeValues")
    return request | condition


def _request_to_kcl(key: str, lease: Lease) -> dict[str, Any]:
    # As the KCL's initiateGracefulLeaseHandoff, without a new counter: its worker would take that
    # for the loss of its lease. The new version is thus the KCL's, and nothing is written on it
    # before the row is loaded again.
    request = update_of({KEY: key}, {"leaseOwner": lease.owner, "checkpointOwner": lease.leaving})
    request["ConditionExpression"] = (
        "(leaseOwner = :checkpointOwner AND attribute_not_exists(checkpointOwner))"
        " OR (leaseOwner = :leaseOwner AND checkpointOwner = :checkpointOwner)"
    )
    return request


def row_state(application: str, attempt: Attempt, checkpoint: Checkpoint, now: datetime) -> Values:
    """Return the values for which the KCL has no attribute: who writes, when, and what."""
    state: Values = fields_of(checkpoint, attempt.version, now)
    for name in ("version", "writer", "lease"):
        state.pop(name, None)
    state |= {"application": application, "stream": checkpoint.shard.stream_arn}
    if (lease := checkpoint.lease) is not None:
        state |= {"settle_seconds": lease.settle_seconds, "consumer_arn": lease.consumer_arn}
    return {name: value for name, value in state.items() if value is not None}


def _lease_changes(lease: Lease) -> Values:
    changes: Values = {name: getattr(lease, field) for field, name in _ATTRIBUTES.items()}
    changes["kpLeaving"] = lease.leaving
    # The KCL cannot read a row with the range of a single key.
    if (hashes := lease.hash_range) is not None and hashes.first < hashes.last:
        changes |= {"startingHashKey": str(hashes.first), "endingHashKey": str(hashes.last)}
    if lease.bytes_per_second is not None:
        changes["throughputKBps"] = round(lease.bytes_per_second / _BYTES_PER_KB, 6)
    # Known parents and children stay: the KCL adds them without a new counter.
    return {name: value for name, value in changes.items() if value != ()}


def row_condition(key: str, attempt: Attempt) -> dict[str, Any]:
    """Return the key of a row, and ``attempt.replaces``, as parameters of a write."""
    known, also = attempt.expected, ""
    if known is None:
        expected: Values = {KEY: None}
    elif (owners := _owners_of(known)) is not None:
        expected = owners | {"leaseCounter": known.number}
    else:
        expected = dict.fromkeys(("leaseCounter", "kpCounter"), known.number)
        expected["kpWriter"], also = known.writer, _UNASKED
    own = "leaseCounter BETWEEN :first AND :last AND kpCounter = leaseCounter AND kpWriter = :own"
    condition = condition_of(attempt, expected, own + _UNASKED, also=also)
    return condition | {"Key": item_of({KEY: key})}


def _owners_of(version: CheckpointVersion | None) -> Values | None:
    """Return the owners of which :func:`version_of` made the writer, if the KCL has written."""
    if version is None or not version.is_foreign:
        return None
    owners = json.loads(version.writer.removeprefix(KCL_WRITER))
    return dict(zip(("leaseOwner", "checkpointOwner"), owners, strict=True))


def worker_row(items: Iterable[Item], worker: str, now: datetime) -> Values | None:
    """Return the row for which a leader of the KCL gives ``worker`` shards; ``None`` without one.

    The KCL's workers report how busy their machines are, and its leader balances that. Our load
    does not compare: this worker reports that of the KCL's workers with as many shards.
    """
    rows: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        rows[item.get("entityType", {}).get("S", _LEASE)].append(item)
    theirs = [values_of(one) for one in rows[_METRICS] if "kpWorker" not in one]
    live = [one for one in theirs if one.get("lut", 0) > now.timestamp() - _SILENT_SECONDS]
    modes = [values_of(one).get("cv", "") for one in rows["CLIENT_VERSION_MIGRATION"]]
    if not live or not any(one.startswith("CLIENT_VERSION_3X") for one in modes):
        return None
    unread = (one for one in rows[_LEASE] if one.get("checkpoint") != {"S": _SHARD_END})
    shards = Counter(values_of(one).get("leaseOwner") for one in unread)
    ratio = shards[worker] / max(1, sum(shards[one[KEY]] for one in live))
    stats = [one.get("sts", {"M": {}})["M"] for one in live]
    busy = {name: sum(_recent(one[name]["L"]) for one in stats if name in one) for name in stats[0]}
    return {
        "entityType": _METRICS,
        "opr": live[0].get("opr", {"M": {}}),
        "sts": {"M": {name: {"L": [{"N": f"{busy[name] * ratio:.3f}"}]} for name in busy}},
        **dict.fromkeys(("lut", "slu"), max(one["lut"] for one in live)),
        "sup": 1,
        # The rows of our workers do not say how busy the KCL's are.
        "kpWorker": 1,
    }


def _recent(values: Iterable[Mapping[str, str]]) -> float:
    """Return the moving average of the KCL; -1 is a failed measurement."""
    known = [number for one in values if (number := float(one["N"])) != -1]
    return reduce(lambda mean, number: (mean + number) / 2, known) if known else 0.0
