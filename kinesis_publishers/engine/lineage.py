"""Which shards to read, from where, in which order: pure rules over a listing and progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from attrs import evolve

from kinesis_publishers.model import (
    HashRange,
    PositionType,
    Shard,
    ShardKey,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.model.shards import MAX_HASH_KEY


def ancestors(keys: Collection[ShardKey], shards: Mapping[ShardKey, Shard]) -> set[ShardKey]:
    """Return the shards of a listing that ``keys`` descend from, over any number of generations."""
    found: set[ShardKey] = set()
    pending = [key for key in keys if key in shards]
    while pending:
        for parent in shards[pending.pop()].parent_keys:
            if parent in shards and parent not in found:
                found.add(parent)
                pending.append(parent)
    return found


def descendants(keys: Iterable[ShardKey], shards: Mapping[ShardKey, Shard]) -> set[ShardKey]:
    """Return the shards of a listing that descend from ``keys``, over any number of generations.

    The other way round than :func:`ancestors`; a key that is not listed has none. One pass over the
    listing, however many keys there are.
    """
    children: defaultdict[ShardKey, list[ShardKey]] = defaultdict(list)
    for key, shard in shards.items():
        for parent in shard.parent_keys:
            children[parent].append(key)
    found: set[ShardKey] = set()
    pending = [key for key in keys if key in shards]
    while pending:
        new = set(children[pending.pop()]) - found
        found |= new
        pending += new
    return found


def pinned_progress(progress: ShardProgress, now: datetime) -> ShardProgress:
    """Return ``progress`` with LATEST as one instant: the same for all streams and shards."""
    if progress.position.type is not PositionType.LATEST:
        return progress
    position = progress.position.pinned(now)
    return ShardProgress(position=position, as_of=None if progress.position.ago else now)


def resumed_progress(stored: ShardProgress) -> ShardProgress:
    """Return stored progress with an age, where its position tells one.

    An initial position may lie beyond the retention: reading begins at the oldest record. Once the
    position is stored, records that arrive after it are owed, and their removal is a loss.
    """
    instant = stored.position.timestamp
    if instant is None or stored.as_of is not None:
        return stored
    return evolve(stored, as_of=instant)


def starting_progress(
    listed: Iterable[Shard],
    known: Mapping[ShardKey, ShardProgress],
    initial: ShardProgress | None,
) -> dict[ShardKey, ShardProgress]:
    """Return where each shard of a listing, of one stream, that is not in ``known`` begins.

    A stream that is read for the first time begins at ``initial``. Later, a shard that appears
    begins at TRIM_HORIZON for any initial position: it holds what came after the records of its
    parents. A shard that a known one descends from was read to its end in an earlier run, or lies
    before the initial position: it is not read again.
    """
    shards = {shard.key: shard for shard in listed}
    unknown = [key for key in shards if key not in known]
    if initial is not None:
        return dict.fromkeys(unknown, initial)
    ended = ancestors(known.keys(), shards)
    found_later = ShardProgress(position=StartingPosition.trim_horizon())
    return {key: found_later.ended() if key in ended else found_later for key in unknown}


def startable(
    listed: Iterable[Shard],
    progress: Mapping[ShardKey, ShardProgress],
    *,
    parents_first: bool = True,
) -> list[Shard]:
    """Return the shards that may be read now: not ended, and every ancestor read to its end.

    Parents alone are not enough: after a restart an empty shard may have ended although its own
    parent has not, and its children must not come before the records of that one. An ancestor that
    is no longer listed has left the retention and counts as ended. Without ``parents_first`` only a
    shard's own end matters.
    """
    shards = {shard.key: shard for shard in listed}
    unread = {key for key in shards if key not in progress or not progress[key].is_ended}
    waiting = descendants(unread, shards) if parents_first else set()
    ready = (unread & progress.keys()) - waiting
    return [shards[key] for key in sorted(ready, key=lambda key: key.shard_id)]


def blocked_shards(
    shards: Mapping[ShardKey, Shard],
    progress: Mapping[ShardKey, ShardProgress],
    finished: Iterable[ShardKey],
) -> set[ShardKey]:
    """Return the listed shards that cannot start because a finished ancestor has not ended.

    Shards that are ``finished`` are read no further, whether they have ended or not.
    """
    return descendants(
        (key for key in finished if key in progress and not progress[key].is_ended), shards
    )


def gone_shards(keys: Iterable[ShardKey], listed: Iterable[Shard]) -> list[ShardKey]:
    """Return which shards of one stream have left the retention: its listing lacks them.

    A listing may be late: a shard whose id comes after all of its ids is newer. Ids ascend, and
    what has left the retention has descendants, which are listed.
    """
    present = {shard.key for shard in listed}
    newest = max((key.shard_id for key in present), default="")
    return sorted((key for key in keys if key not in present and key.shard_id < newest), key=str)


def generations(shards: Iterable[Shard]) -> list[list[Shard]]:
    """Return ``shards`` in groups, with the ancestors of each shard in earlier groups."""
    pending = {shard.key: shard for shard in shards}
    found = []
    while pending:
        ready = [
            shard for shard in pending.values() if pending.keys().isdisjoint(shard.parent_keys)
        ]
        # A listing in which shards descend from each other in a circle must not hang the reader.
        ready = ready or list(pending.values())
        found.append(ready)
        for shard in ready:
            del pending[shard.key]
    return found


def uncovered_hash_keys(listed: Iterable[Shard]) -> list[HashRange]:
    """Return the hash keys that belong to no open shard of a complete listing of one stream.

    What producers put there has nowhere to go: the listing lacks a shard.
    """
    ranges = sorted(
        (HashRange.of(shard) for shard in listed if not shard.is_closed),
        key=lambda one: one.first,
    )
    found, following = [], 0
    for one in ranges:
        if one.first > following:
            found.append(HashRange(following, one.first - 1))
        following = max(following, one.last + 1)
    if following <= MAX_HASH_KEY:
        found.append(HashRange(following, MAX_HASH_KEY))
    return found
