"""Our publishers keep the contract, over the fakes and over LocalKinesis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.testing.contracts import (
    RecordPublisherContract,
    RecordPublisherFactoryContract,
)
from tests.contract.service_subjects import FakeServiceSubject, LocalKinesisSubject, ShiftedClock

if TYPE_CHECKING:
    from kinesis_publishers import PublisherContext
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

OURS = ("POLLING", "EFO")


@pytest.fixture(params=OURS)
def publisher(request: pytest.FixtureRequest) -> str:
    return request.param


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
