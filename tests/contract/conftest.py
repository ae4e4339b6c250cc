"""What the contract tests share: a local service without limits, and clients of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kinesis_publishers import PublisherContext
from kinesis_publishers.aws.control_plane import Boto3ControlPlane
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.config import AwsConfig, Properties, SubscriptionHttpConfig
from kinesis_publishers.testing.local_kinesis import LocalKinesis
from tests.contract.service_subjects import (
    BEHAVIOUR,
    LIMITS,
    HttpService,
    InProcessService,
    QuickClock,
    Service,
    ShiftedClock,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A user of the consumer in one test would keep it alive in all others.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def server_clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture(scope="module")
def server(server_clock: ShiftedClock) -> Iterator[LocalKinesis]:
    with LocalKinesis.in_thread(LIMITS, server_clock, BEHAVIOUR) as running:
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
def over_http(
    server: LocalKinesis, server_clock: ShiftedClock, clients: PublisherContext
) -> HttpService:
    return HttpService(server, server_clock, clients)


@pytest.fixture(params=["in-process", "http"])
def service(request: pytest.FixtureRequest, over_http: HttpService) -> Service:
    return over_http if request.param == "http" else InProcessService()
