"""The partition key of an aggregate, by which others than its readers distribute it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.aggregation import decode_aggregate
from kinesis_publishers.config import AggregationMode
from kinesis_publishers.model.records import AGGREGATE_MAGIC
from tests.unit.producing.producing_support import STREAM
from tests.unit.producing.test_producing_aggregates import read_by_ours, read_by_the_kcl

if TYPE_CHECKING:
    from tests.unit.producing.producing_support import Writing

_RECORDS = [(b"%d" % number, f"key-{number}") for number in range(300)]
_DATA = sorted(data for data, _ in _RECORDS)
_FIRST = {"aggregation": True, "aggregation_outerkey": "first"}
ORDERED = pytest.mark.parametrize("ordering", ["none", "key"])


@ORDERED
async def test_first_stores_an_aggregate_under_the_key_of_its_first_record(
    writing: Writing, ordering: str
) -> None:
    async with writing.producer(**_FIRST, ordering=ordering) as producer:
        await producer.put_many(_RECORDS)
    outer = {one.partition_key: decode_aggregate(one.data) for one in writing.stored()}
    assert {key: one.partition_keys[0] for key, one in outer.items()} == {key: key for key in outer}
    assert sorted(await read_by_ours(writing)) == _DATA


async def test_explicit_hash_keys_still_decide_the_shard(writing: Writing) -> None:
    # All under one key, whose own shard is one of four.
    records = [(b"%d" % n, "k", str(n * 2**120)) for n in range(256)]
    writing.server.reshard(STREAM, 4)
    async with writing.producer(**_FIRST) as producer:
        await producer.put_many(records)
    shards = {name: one for name, one in writing.server.records(STREAM).items() if one}
    assert len(shards) == 4
    assert {one.partition_key for found in shards.values() for one in found} == {"k"}
    assert len(await read_by_the_kcl(writing)) == 256


@ORDERED
async def test_after_a_reshard_readers_in_the_mode_kpl_get_each_record_once(
    writing: Writing, ordering: str
) -> None:
    async with writing.producer(**_FIRST, ordering=ordering) as producer:
        await writing.run(producer.flush())
        writing.server.reshard(STREAM, 3)
        await writing.result(await producer.put_many(_RECORDS))
    assert sorted(await read_by_ours(writing, AggregationMode.KPL)) == _DATA
    assert sorted(await read_by_the_kcl(writing)) == _DATA
    # As the documentation says: others get some of them twice, and lose none.
    assert set(Counter(await read_by_ours(writing)).values()) == {1, 2}


async def test_an_aggregate_and_its_key_are_within_the_limit(writing: Writing) -> None:
    records = [(bytes(100), f"{number:03}" + "k" * 253) for number in range(50)]
    async with writing.producer(**_FIRST, aggregation_maxbytes=2_000) as producer:
        await producer.put_many(records)
    packed = [one for one in writing.stored() if one.data.startswith(AGGREGATE_MAGIC)]
    assert packed
    assert max(len(one.data) + len(one.partition_key) for one in packed) <= 2_000
