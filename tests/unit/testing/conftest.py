"""The service core under a manual clock, called without HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pybase64
import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits
from kinesis_publishers.testing.local_kinesis.operations import OPERATIONS
from kinesis_publishers.testing.local_kinesis.requests import Request
from kinesis_publishers.testing.local_kinesis.state import ServiceState
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.testing.subscribing_harness import FanOut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

STREAM = "orders"
_OTHER_NAMES = {"StreamARN", "ResourceARN", "ConsumerARN", "NextToken", "ShardIterator"}


class Kinesis:
    """Calls operations of one account by name; the stream ``orders`` unless another is named."""

    def __init__(self, limits: Limits, behaviour: Behaviour) -> None:
        self.clock = ManualClock()
        self.state = ServiceState(self.clock, behaviour, limits)

    def __call__(self, operation: str, **fields: Any) -> Any:
        if operation != "ListStreams" and _OTHER_NAMES.isdisjoint(fields):
            fields.setdefault("StreamName", STREAM)
        answer = OPERATIONS[operation](self.state, Request.parse(orjson.dumps(fields)))
        return orjson.loads(answer) if isinstance(answer, bytes) else answer

    def create(self, shard_count: int = 1) -> None:
        self("CreateStream", ShardCount=shard_count)

    def put(self, data: str | bytes, key: str = "key", **fields: Any) -> Any:
        raw = data.encode() if isinstance(data, str) else data
        encoded = pybase64.b64encode(raw).decode()
        return self("PutRecord", Data=encoded, PartitionKey=key, **fields)

    def shards(self, **fields: Any) -> list[dict[str, Any]]:
        return list(self("ListShards", **fields)["Shards"])

    def shard_ids(self, **fields: Any) -> list[int]:
        """Return the numbers of the listed shards."""
        return [int(shard["ShardId"].removeprefix("shardId-")) for shard in self.shards(**fields)]

    def iterator(self, kind: str = "TRIM_HORIZON", shard: int = 0, **fields: Any) -> str:
        return str(
            self(
                "GetShardIterator",
                ShardId=f"shardId-{shard:012d}",
                ShardIteratorType=kind,
                **fields,
            )["ShardIterator"]
        )

    def read(self, iterator: str | None = None, shard: int = 0, **fields: Any) -> Any:
        """Return one answer of GetRecords, from the trim horizon unless an iterator is given."""
        return self("GetRecords", ShardIterator=iterator or self.iterator(shard=shard), **fields)

    def texts(self, iterator: str | None = None, shard: int = 0) -> list[str]:
        return texts_of(self.read(iterator, shard))


def texts_of(answer: Any) -> list[str]:
    return [pybase64.b64decode(record["Data"]).decode() for record in answer["Records"]]


@pytest.fixture
def make_kinesis() -> Callable[..., Kinesis]:
    def make(limits: Limits | None = None, behaviour: Behaviour | None = None) -> Kinesis:
        return Kinesis(limits or Limits.off(), behaviour or Behaviour())

    return make


@pytest.fixture
def kinesis(make_kinesis: Callable[..., Kinesis]) -> Kinesis:
    """An account without rates whose stream ``orders`` has one shard."""
    kinesis = make_kinesis()
    kinesis.create()
    return kinesis


@pytest.fixture
async def make_fan_out() -> AsyncIterator[Callable[..., FanOut]]:
    made: list[FanOut] = []

    def make(limits: Limits | None = None, behaviour: Behaviour | None = None) -> FanOut:
        made.append(FanOut(limits, behaviour))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.fixture
def fan_out(make_fan_out: Callable[..., FanOut]) -> FanOut:
    """A stream with one shard and one consumer, under AWS's limits."""
    return make_fan_out()
