"""EAGER registration where a source is constructed, apart from those who read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import Properties, SystemClock
from kinesis_publishers.config import RegistrationConfig
from kinesis_publishers.errors import MissingOptionError
from kinesis_publishers.readers.guard import ConsumerGuard
from kinesis_publishers.readers.stream_consumers import register_consumers
from kinesis_publishers.registration import ConsumerLease
from kinesis_publishers.testing.fakes import ScriptedPublisherFactory

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_STREAMS = ("orders", "Payments")


@pytest.fixture(autouse=True)
def _leases_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def given(local_kinesis: LocalKinesis) -> dict[str, str]:
    for stream in _STREAMS:
        local_kinesis.create_stream(stream)
    return {
        **local_kinesis.properties(",".join(_STREAMS)),
        "kinesis.stream.recordpublisher": "EFO",
        "kinesis.stream.efo.registration": "EAGER",
        "kinesis.stream.efo.consumername": "app",
    }


def created_arns(local_kinesis: LocalKinesis) -> list[str | None]:
    """Return what is recorded as registered, per stream."""
    prefix = f"arn:aws:kinesis:us-east-1:{local_kinesis.behaviour.account_id}:stream"
    leases = [
        ConsumerLease.acquire(
            f"{prefix}/{name}",
            "app",
            clock=SystemClock(),
            endpoint_url=local_kinesis.endpoint_url,
        )
        for name in _STREAMS
    ]
    found = []
    for one in leases:
        lease = local_kinesis.run(one)
        found.append(lease.created_arn)
        lease.close()
    return found


def test_the_arns_of_all_streams_travel_with_the_properties(
    local_kinesis: LocalKinesis, given: dict[str, str]
) -> None:
    properties = register_consumers(Properties.parse(given))
    arns = RegistrationConfig.from_properties(properties).consumer_arns
    assert set(arns) == set(_STREAMS)
    assert (
        local_kinesis.consumers("orders")
        == local_kinesis.consumers("Payments")
        == {"app": "ACTIVE"}
    )
    # Nothing is removed at its end, and the last reader knows what to remove.
    assert local_kinesis.calls("DeregisterStreamConsumer") == []
    assert created_arns(local_kinesis) == [arns[name] for name in _STREAMS]


def test_constructing_a_source_again_registers_nothing_more(
    local_kinesis: LocalKinesis, given: dict[str, str]
) -> None:
    first = register_consumers(Properties.parse(given))
    assert register_consumers(Properties.parse(given)) == first
    calls = len(local_kinesis.calls())
    assert register_consumers(first) == first
    assert len(local_kinesis.calls("RegisterStreamConsumer")) == 2
    # With the ARNs there is nothing to look for but the streams.
    assert {call.operation for call in local_kinesis.calls()[calls:]} == {"DescribeStreamSummary"}


async def test_a_source_may_be_constructed_where_an_event_loop_runs(
    local_kinesis: LocalKinesis, given: dict[str, str]
) -> None:
    properties = register_consumers(Properties.parse(given))
    assert set(RegistrationConfig.from_properties(properties).consumer_arns) == set(_STREAMS)
    assert local_kinesis.consumers("orders") == {"app": "ACTIVE"}


def test_a_consumer_that_was_there_before_is_not_recorded(
    local_kinesis: LocalKinesis, given: dict[str, str]
) -> None:
    arns = [local_kinesis.register_consumer(name, "app") for name in _STREAMS]
    properties = register_consumers(Properties.parse(given))
    found = RegistrationConfig.from_properties(properties).consumer_arns
    assert [found[name] for name in _STREAMS] == arns
    assert created_arns(local_kinesis) == [None, None]


class NeedsRegistration(ScriptedPublisherFactory):
    needs_registration = True


def test_a_publisher_of_your_own_needs_a_name_for_its_consumers_too(
    local_kinesis: LocalKinesis, given: dict[str, str]
) -> None:
    given["kinesis.stream.recordpublisher"] = f"{__name__}:NeedsRegistration"
    registered = register_consumers(Properties.parse(given))
    assert set(RegistrationConfig.from_properties(registered).consumer_arns) == set(_STREAMS)
    calls = local_kinesis.calls()
    del given["kinesis.stream.efo.consumername"]
    with pytest.raises(MissingOptionError, match=r"efo\.consumername is required"):
        register_consumers(Properties.parse(given))
    with pytest.raises(MissingOptionError, match=r"efo\.consumername is required"):
        ConsumerGuard.for_properties(Properties.parse(given))
    assert local_kinesis.calls() == calls


@pytest.mark.parametrize(
    ("key", "value"),
    [("kinesis.stream.recordpublisher", "POLLING"), ("kinesis.stream.efo.registration", "LAZY")],
)
def test_everything_else_is_returned_as_it_is_without_a_call(
    local_kinesis: LocalKinesis, given: dict[str, str], key: str, value: str
) -> None:
    properties = Properties.parse({**given, key: value})
    assert register_consumers(properties) is properties
    assert local_kinesis.calls() == []
