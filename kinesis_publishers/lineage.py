"""Which shards to read, from where, in which order: pure rules over a listing and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.model import Shard, ShardKey, ShardProgress, StartingPosition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = ["ancestors", "missing_shards", "startable", "starting_progress"]


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


def starting_progress(
    listed: Iterable[Shard],
    known: Mapping[ShardKey, ShardProgress],
    initial: ShardProgress | None,
) -> dict[ShardKey, ShardProgress]:
    """Return where each shard of a listing that is not in ``known`` begins.

    Args:
        listed: the shards of one stream.
        known: the progress that exists already.
        initial: where a stream begins that is read for the first time; ``None`` if it is not.

    A shard that appears after the start begins at TRIM_HORIZON, whatever the initial position: it
    holds what came after the records of its parents. A shard that a known one descends from was
    read to its end in an earlier run, or lies before the initial position: it is not read again.
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
    """Return the shards that may be read now: not ended, and every parent read to its end.

    A parent that is no longer listed has left the retention and counts as ended. Without
    ``parents_first`` only a shard's own end matters.
    """
    shards = {shard.key: shard for shard in listed}

    def has_ended(key: ShardKey) -> bool:
        return key not in shards or (key in progress and progress[key].is_ended)

    return [
        shard
        for key, shard in sorted(shards.items(), key=lambda item: item[0].shard_id)
        if key in progress
        and not progress[key].is_ended
        and (not parents_first or all(map(has_ended, shard.parent_keys)))
    ]


def missing_shards(
    listed: Iterable[Shard], progress: Mapping[ShardKey, ShardProgress]
) -> list[ShardKey]:
    """Return the shards that were not read to their end and are not listed any more."""
    present = {shard.key for shard in listed}
    return sorted(
        (key for key, one in progress.items() if key not in present and not one.is_ended),
        key=str,
    )
