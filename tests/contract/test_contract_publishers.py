"""Our publishers keep the contract, over LocalKinesis in this process and over HTTP."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.testing.contracts import (
    RecordPublisherContract,
    RecordPublisherFactoryContract,
)
from tests.contract.service_subjects import HttpService, InProcessService, ServiceSubject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

OURS = ("POLLING", "EFO")


@pytest.fixture(params=OURS)
def publisher(request: pytest.FixtureRequest) -> str:
    return request.param


class TestPublishersInProcess(RecordPublisherContract):
    @pytest.fixture
    def subject(self, publisher: str) -> ServiceSubject:
        return ServiceSubject(publisher, InProcessService())


class TestFactoriesInProcess(RecordPublisherFactoryContract):
    @pytest.fixture
    def subject(self, publisher: str) -> ServiceSubject:
        return ServiceSubject(publisher, InProcessService())


# The planes in process answer as those over HTTP: see test_local_kinesis_planes. What is left is
# what waits, breaks off or shares connections.
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "test",
    [
        RecordPublisherContract().test_each_record_is_delivered_once_in_order,
        RecordPublisherContract().test_a_shard_that_is_open_is_never_complete,
        partial(
            RecordPublisherContract().test_it_can_be_cancelled_while_the_consumer_is,
            place="processing a batch",
        ),
        RecordPublisherContract().test_it_continues_after_an_interruption,
        RecordPublisherContract().test_while_it_is_throttled_it_holds_no_room,
        RecordPublisherFactoryContract().test_it_reads_many_shards_at_once,
    ],
    ids=lambda test: getattr(test, "func", test).__name__.removeprefix("test_"),
)
async def test_our_publishers_keep_over_http_what_depends_on_the_connection(
    test: Callable[..., Awaitable[None]], publisher: str, over_http: HttpService
) -> None:
    await test(ServiceSubject(publisher, over_http))
