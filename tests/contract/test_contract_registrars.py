"""Every registration strategy keeps the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.config import Properties, RegistrationConfig
from kinesis_publishers.registration import create_registrar
from kinesis_publishers.testing.contracts import RegistrarSubject, StreamConsumerRegistrarContract

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_publishers import PublisherContext
    from kinesis_publishers.abc import StreamConsumerRegistrar


CONSUMER_NAME = "billing"


def registering(strategy: str, context: PublisherContext) -> StreamConsumerRegistrar:
    properties = {
        "kinesis.stream.recordpublisher": "EFO",
        "kinesis.stream.efo.registration": strategy,
        "kinesis.stream.efo.consumername": CONSUMER_NAME,
    }
    config = RegistrationConfig.from_properties(Properties.parse(properties, complete=False))
    return create_registrar(config, context)


def knowing(context: PublisherContext, existing: Mapping[str, str]) -> StreamConsumerRegistrar:
    arns = {
        f"kinesis.stream.efo.consumerarn.{stream.rpartition('/')[2]}": arn
        for stream, arn in existing.items()
    }
    properties = {
        "kinesis.streams": ",".join(existing),
        "kinesis.stream.recordpublisher": "EFO",
        "kinesis.stream.efo.registration": "NONE",
    }
    config = RegistrationConfig.from_properties(Properties.parse({**properties, **arns}))
    return create_registrar(config, context)


class TestRegisteringRegistrars(StreamConsumerRegistrarContract):
    @pytest.fixture(params=["LAZY", "EAGER"])
    def subject(self, request: pytest.FixtureRequest) -> RegistrarSubject:
        return RegistrarSubject(lambda context, _: registering(request.param, context))


class TestNoRegistrar(StreamConsumerRegistrarContract):
    @pytest.fixture
    def subject(self) -> RegistrarSubject:
        return RegistrarSubject(knowing, registers=False)
