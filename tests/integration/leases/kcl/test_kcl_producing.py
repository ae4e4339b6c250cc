"""The KCL reads what our producer has packed, also across a split and a merge."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import BlockingProducer
from kinesis_publishers.events import ShardMispredicted
from tests.integration.leases.kcl.kcl_application import STREAM, lease_row

if TYPE_CHECKING:
    from kinesis_publishers import Event
    from tests.integration.leases.kcl.kcl_application import KclApplication

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("kcl")]


def test_the_kcl_gets_each_record_once_across_reshards(kcl: KclApplication) -> None:
    kcl.server.create_stream(STREAM, 2)
    kcl.create_table(lease_row(0), lease_row(1))
    worker = kcl.start("one")
    events: list[Event] = []
    properties = {
        **kcl.server.properties(STREAM),
        "kinesis.producer.aggregation": "true",
    }
    put = 0
    with BlockingProducer.from_properties(properties, events=events.append) as producer:
        # Each time the producer knows the shards that were before.
        for shards in (2, 3, 1):
            kcl.server.reshard(STREAM, shards)
            # Some with explicit hash keys, which are packed too.
            records = [
                (b"%d" % n, f"key-{n}", str(n * 2**119 % 2**128) if n % 5 == 0 else None)
                for n in range(put, put + 200)
            ]
            put += len(records)
            results = producer.put_many(records).result(60)
            assert len(results) == len(records)
            producer.put(b"alone %d" % shards, "k").result(60)
    alone = Counter([b"alone 2", b"alone 3", b"alone 1"])
    expected = Counter([b"%d" % n for n in range(put)]) + alone

    def given() -> Counter[bytes]:
        # After the loss of a lease it is given the records of a position again.
        return Counter({(one.shard, one.position): one.data for one in worker.records}.values())

    kcl.wait_until(lambda: given().total() >= expected.total())
    worker.stop()
    assert given() == expected
    mispredicted = [one for one in events if isinstance(one, ShardMispredicted)]
    assert sum(one.resent for one in mispredicted) > 0
