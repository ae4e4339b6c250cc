"""Consumers and subscriptions as a test sees and changes them, in process and by admin calls."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour, LocalKinesis
from kinesis_publishers.testing.local_kinesis.answers import ApiError
from kinesis_publishers.testing.local_kinesis.dispatch import Admin
from tests.unit.testing.subscribing_harness import SHARD, STREAM


def described(fan_out: Any) -> Any:
    answer = Admin(fan_out.service).handle("GET", "/_admin/state", b"")
    return orjson.loads(answer.body)["streams"][STREAM]["consumers"]


async def test_the_state_shows_consumers_and_their_open_subscriptions(fan_out: Any) -> None:
    idle_arn = fan_out.register("idle")
    reader = await fan_out.subscribe()
    await fan_out.clock.advance(6)
    assert described(fan_out) == {
        "c": {
            "arn": fan_out.consumer_arn,
            "status": "ACTIVE",
            "subscriptions": [{"shard_id": SHARD(0), "age_seconds": 6.0, "events": 1}],
        },
        "idle": {"arn": idle_arn, "status": "ACTIVE", "subscriptions": []},
    }
    await reader.close()
    assert described(fan_out)["c"]["subscriptions"] == []


def test_a_test_registers_and_removes_consumers_without_a_client() -> None:
    server = LocalKinesis(behaviour=Behaviour(consumer_deleting_seconds=60))
    server.create_stream(STREAM)
    arn = server.register_consumer(STREAM, "c")
    assert arn.startswith("arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/c:")
    assert server.consumers(STREAM) == {"c": "ACTIVE"}
    server.deregister_consumer(STREAM, "c")
    assert server.consumers(STREAM) == {"c": "DELETING"}
    with pytest.raises(ApiError, match="ResourceInUseException"):
        server.register_consumer(STREAM, "c")
    with pytest.raises(ValueError, match="stream orders has no consumer d"):
        server.deregister_consumer(STREAM, "d")
    assert server.open_subscriptions(STREAM) == 0
