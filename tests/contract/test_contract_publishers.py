"""Our publishers keep the contract, over LocalKinesis in this process and over HTTP."""

from __future__ import annotations

import pytest

from kinesis_publishers.testing.contracts import (
    RecordPublisherContract,
    RecordPublisherFactoryContract,
)
from tests.contract.service_subjects import HttpService, InProcessService, ServiceSubject

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


@pytest.mark.asyncio(loop_scope="module")
class TestPublishersOverHttp(RecordPublisherContract):
    @pytest.fixture
    def subject(self, publisher: str, over_http: HttpService) -> ServiceSubject:
        return ServiceSubject(publisher, over_http)


@pytest.mark.asyncio(loop_scope="module")
class TestFactoriesOverHttp(RecordPublisherFactoryContract):
    @pytest.fixture
    def subject(self, publisher: str, over_http: HttpService) -> ServiceSubject:
        return ServiceSubject(publisher, over_http)
