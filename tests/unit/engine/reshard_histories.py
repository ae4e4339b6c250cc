"""Random histories of splits and merges, for tests of what depends on lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from kinesis_publishers.testing.fakes import sample_shard

if TYPE_CHECKING:
    from kinesis_publishers import Shard

__all__ = ["reshard_histories"]


@st.composite
def reshard_histories(draw: st.DrawFn) -> list[Shard]:
    """Draw every shard that a stream ever had, in an order that no rule may depend on."""
    shards = [sample_shard(number) for number in range(draw(st.integers(1, 3)))]
    tips = list(range(len(shards)))
    for _ in range(draw(st.integers(0, 8))):
        is_merge = len(tips) > 1 and draw(st.booleans())
        parents = [tips.pop(draw(st.integers(0, len(tips) - 1))) for _ in range(1 + is_merge)]
        for _ in range(2 - is_merge):
            tips.append(len(shards))
            shards.append(
                sample_shard(
                    len(shards),
                    parent=parents[0],
                    adjacent_parent=parents[1] if is_merge else None,
                )
            )
    return draw(st.permutations(shards))
