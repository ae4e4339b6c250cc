"""Each kind of fault as a client meets it over HTTP."""

from __future__ import annotations

from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import aiohttp
import orjson
import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SHARD = "shardId-000000000000"
THROTTLED = "ProvisionedThroughputExceededException"


class Client:
    """Reads the one shard of ``orders`` from its beginning."""

    def __init__(self, server: LocalKinesis, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._session = session
        self._iterator = ""

    async def call(self, operation: str, **fields: str) -> tuple[int, dict[str, object]]:
        response = await self._session.post(
            self.server.endpoint_url,
            data=orjson.dumps(fields),
            headers={"X-Amz-Target": f"Kinesis_20131202.{operation}"},
        )
        async with response:
            return response.status, orjson.loads(await response.read() or b"{}")

    async def read(self) -> tuple[int, dict[str, object]]:
        if not self._iterator:
            _, answer = await self.call(
                "GetShardIterator",
                StreamName="orders",
                ShardId=SHARD,
                ShardIteratorType="TRIM_HORIZON",
            )
            self._iterator = str(answer["ShardIterator"])
        return await self.call("GetRecords", ShardIterator=self._iterator)

    async def outcome(self) -> str:
        """Return the error code of one read, or the number of its records."""
        status, answer = await self.read()
        records = answer.get("Records")
        return f"{status} {answer['__type']}" if records is None else str(len(records))  # type: ignore[arg-type]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with (
        LocalKinesis(Limits.off(), ManualClock()) as server,
        aiohttp.ClientSession() as session,
    ):
        server.create_stream("orders")
        server.put_many("orders", [("k", b"x" * 100)] * 10)
        yield Client(server, session)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault("GetRecords", "throttle"), f"400 {THROTTLED}"),
        (Fault("GetRecords", "internal_failure"), "500 InternalFailure"),
        (
            Fault("GetRecords", "error", code="KMSAccessDeniedException"),
            "400 KMSAccessDeniedException",
        ),
        (
            Fault("GetRecords", "error", code="ServiceUnavailable", status=503),
            "503 ServiceUnavailable",
        ),
        (Fault("GetRecords", "empty"), "0"),
    ],
)
async def test_an_answer_is_replaced_once(client: Client, fault: Fault, expected: str) -> None:
    client.server.add_fault(fault)
    assert [await client.outcome() for _ in range(2)] == [expected, "10"]


@pytest.mark.parametrize("skew", [-20, 0, 3600])
async def test_every_answer_is_dated_by_the_clock_of_the_server(skew: float) -> None:
    clock = ManualClock()
    behaviour = Behaviour(clock_skew_seconds=skew)
    async with (
        LocalKinesis(Limits.off(), clock, behaviour) as server,
        aiohttp.ClientSession() as session,
    ):
        server.create_stream("orders")
        server.put_many("orders", [("k", b"x")])
        expected = clock.now() + timedelta(seconds=skew)
        arn = server.register_consumer("orders", "c")
        position = {"Type": "AT_TIMESTAMP", "Timestamp": expected.timestamp() + 1}
        subscription = {"ConsumerARN": arn, "ShardId": SHARD, "StartingPosition": position}
        dates, statuses = [], []
        for operation, fields in [
            ("ListShards", {"StreamName": "orders"}),
            ("Unheard", {}),
            ("SubscribeToShard", subscription),
            ("SubscribeToShard", subscription | {"StartingPosition": {"Type": "LATEST"}}),
        ]:
            async with session.post(
                server.endpoint_url,
                data=orjson.dumps(fields),
                headers={"X-Amz-Target": f"Kinesis_20131202.{operation}"},
            ) as response:
                statuses.append(response.status)
                dates.append(parsedate_to_datetime(response.headers["Date"]))
        # A timestamp in the future of the server is refused.
        assert statuses == [200, 400, 400, 200]
        assert dates == [expected] * 4
        assert server.records("orders")[SHARD][0].arrival_time == expected


async def test_the_log_names_what_went_wrong(client: Client) -> None:
    await client.outcome()
    client.server.add_fault(Fault("GetRecords", "throttle"))
    client.server.add_fault(Fault("GetRecords", "truncate"))
    await client.outcome()
    with pytest.raises(aiohttp.ClientPayloadError):
        await client.read()
    calls = client.server.calls("GetRecords", "orders", "shardId-000000000000")
    assert [call.code for call in calls] == ["", THROTTLED, "truncate"]
    assert client.server.busiest_second("GetRecords") == 3
