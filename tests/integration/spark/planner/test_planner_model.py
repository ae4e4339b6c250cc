"""Puts, reshards, restarts, repeated micro-batches and changes of the planner, in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits, LocalKinesis
from kinesis_publishers_spark.limits import BatchLimit
from tests.examples import PROFILE, parts
from tests.integration.spark.planner.planner_harness import STREAM, Query, planner
from tests.integration.spark.planner.stream_ledger import StreamLedger, places

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from random import Random

    from kinesis_publishers_spark.micro_batches import MicroBatches

KINDS = st.sampled_from(["prefetch", "ranges"])
LIMITS = st.sampled_from(
    [BatchLimit(), BatchLimit(records=1), BatchLimit(records=7), BatchLimit(payload_bytes=20)]
)


class PlannedQuery(RuleBasedStateMachine):
    """A query whose micro-batches are compared with what was put between their offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.context: AbstractContextManager[LocalKinesis] | None = None
        self.query: Query | None = None
        self.checked = 0

    @initialize(
        late=st.booleans(), kind=KINDS, position=st.sampled_from(["TRIM_HORIZON", "LATEST"])
    )
    def begin(self, late: bool, kind: str, position: str) -> None:
        behaviour = Behaviour(late_shard_end=late)
        self.context = LocalKinesis.in_thread(Limits.off(), behaviour=behaviour)
        self.server = self.context.__enter__()
        self.server.create_stream(STREAM, 2)
        self.ledger = StreamLedger(self.server, STREAM)
        self.position = position
        self.kind = kind
        self.shards: str | None = None
        self.is_in_order = True
        self.query = Query(self.make)
        self.query.run_batch()

    def make(self) -> MicroBatches:
        more = {} if self.shards is None else {"shards": self.shards}
        return planner(self.server, self.position, kind=self.kind, **more)

    @rule(count=st.integers(1, 40))
    def put(self, count: int) -> None:
        self.ledger.put(count)

    @rule(shards=st.integers(1, 5))
    def reshard(self, shards: int) -> None:
        self.server.reshard(STREAM, shards)

    @rule(limit=LIMITS)
    def run_batch(self, limit: BatchLimit) -> None:
        self.query.run_batch(limit)

    @precondition(lambda self: self.shards is None)
    @rule(limit=LIMITS)
    def run_some_batches(self, limit: BatchLimit) -> None:
        wanted = len(self.query.rows) + 5
        if wanted <= self.ledger.count:
            self.query.run_until(wanted, limit)

    @rule(kind=KINDS)
    def restart(self, kind: str) -> None:
        self.kind, self.shards = kind, None
        self.query.restart()

    @rule(kind=KINDS, data=st.data())
    def restart_with_some_shards(self, kind: str, data: st.DataObject) -> None:
        there = sorted(self.server.records(STREAM))
        some = data.draw(st.sets(st.sampled_from(there), min_size=1))
        # Children that are read do not wait for parents that are not.
        self.kind, self.is_in_order = kind, False
        self.shards = ",".join(f"{STREAM}:{one}" for one in sorted(some))
        self.query.restart()

    @rule(kind=KINDS)
    def restart_without_the_last_commit(self, kind: str) -> None:
        self.kind, self.shards = kind, None
        self.query.restart()
        before = self.query.batches[-1]
        self.query.replay_last()
        assert sorted(self.query.batches[-1].rows) == sorted(before.rows)

    @rule()
    def let_shards_leave_the_retention(self) -> None:
        # Those that ended before the last micro-batch, which may have to be read again.
        for key, one in self.query.batches[-1].start.shards.items():
            if one.progress.is_ended and key.shard_id in self.server.records(STREAM):
                self.server.trim(STREAM, shard_id=key.shard_id)

    @precondition(lambda self: self.query is not None)
    @invariant()
    def each_batch_has_what_lies_between_its_offsets(self) -> None:
        for batch in self.query.batches[self.checked :]:
            self.ledger.assert_is_between(batch.start, batch.end, places(batch))
        self.checked = max(0, len(self.query.batches) - 1)

    def teardown(self) -> None:
        try:
            if self.query is not None:
                self.finish()
        finally:
            if self.query is not None:
                self.query.stop()
            if self.context is not None:
                self.context.__exit__(None, None, None)

    def finish(self) -> None:
        """Read what is left: everything was there exactly once, in the order of each key."""
        if self.shards is not None:
            self.restart(self.kind)
        self.query.run_until(self.ledger.count)
        self.each_batch_has_what_lies_between_its_offsets()
        read = [place for batch in self.query.batches for place in places(batch)]
        assert len(read) == self.ledger.count == len(set(read))
        if self.is_in_order:
            self.ledger.assert_in_order_per_key(map(places, self.query.batches))


_PARTS, _EXAMPLES = {"long": (2, 12), "soak": (10, 100)}.get(PROFILE, (1, 6))


@pytest.mark.hypothesis
@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("_", parts(_PARTS))
def test_each_micro_batch_has_what_lies_between_its_offsets(_: int, chance: Random) -> None:
    run_state_machine_as_test(
        seed(chance.getrandbits(64))(PlannedQuery),
        settings=settings(
            max_examples=_EXAMPLES,
            stateful_step_count=12,
            suppress_health_check=list(HealthCheck),
        ),
    )
