"""Our publishers keep the contract, over the fakes and over LocalKinesis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from attrs import evolve
from service_subjects import FakeServiceSubject, LocalKinesisSubject, QuickClock, ShiftedClock

from kinesis_publishers import PublisherContext
from kinesis_publishers.config import AwsConfig, Properties, SubscriptionHttpConfig
from kinesis_publishers.testing.contracts import (
    RecordPublisherContract,
    RecordPublisherFactoryContract,
)
from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from kinesis_publishers.transport import AioDataPlane, Boto3ControlPlane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

OURS = ("POLLING", "EFO")


@pytest.fixture(params=OURS)
def publisher(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def server_clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture(scope="module")
def server(server_clock: ShiftedClock) -> Iterator[LocalKinesis]:
    limits = evolve(Limits.off(), event_max_records=5)
    with LocalKinesis.in_thread(limits, server_clock) as running:
        yield running


# Opening clients takes longer than all tests together: they share a loop, and them.
@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clients(server: LocalKinesis) -> AsyncIterator[PublisherContext]:
    properties = Properties.parse(server.properties("orders"))
    aws, http = (one.from_properties(properties) for one in (AwsConfig, SubscriptionHttpConfig))
    clock = QuickClock()
    async with (
        Boto3ControlPlane(aws) as control_plane,
        AioDataPlane(aws, http=http, clock=clock) as data_plane,
    ):
        yield PublisherContext(
            data_plane=data_plane,
            control_plane=control_plane,
            clock=clock,
            events=lambda _: None,
        )


@pytest.fixture
def over_local_kinesis(
    publisher: str, server: LocalKinesis, server_clock: ShiftedClock, clients: PublisherContext
) -> LocalKinesisSubject:
    server.reset()
    return LocalKinesisSubject(publisher, server, server_clock, clients)


class TestPublishersOverFakes(RecordPublisherContract):
    @pytest.fixture
    def subject(self, publisher: str) -> FakeServiceSubject:
        return FakeServiceSubject(publisher)


class TestFactoriesOverFakes(RecordPublisherFactoryContract):
    @pytest.fixture
    def subject(self, publisher: str) -> FakeServiceSubject:
        return FakeServiceSubject(publisher)


@pytest.mark.asyncio(loop_scope="module")
class TestPublishersOverLocalKinesis(RecordPublisherContract):
    @pytest.fixture
    def subject(self, over_local_kinesis: LocalKinesisSubject) -> LocalKinesisSubject:
        return over_local_kinesis


@pytest.mark.asyncio(loop_scope="module")
class TestFactoriesOverLocalKinesis(RecordPublisherFactoryContract):
    @pytest.fixture
    def subject(self, over_local_kinesis: LocalKinesisSubject) -> LocalKinesisSubject:
        return over_local_kinesis
