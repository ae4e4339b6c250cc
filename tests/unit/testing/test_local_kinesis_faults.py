"""The plan of faults: which calls are hit, how often, and with what."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers.testing.local_kinesis.faults import Fault, FaultPlan, Scope
from kinesis_publishers.testing.local_kinesis.service import Call, CallLog, busiest_second
from kinesis_publishers.testing.manual_clock import ManualClock

READ = Scope("GetRecords", "orders", "shardId-000000000000")


def kinds(plan: FaultPlan, scope: Scope, count: int) -> list[list[str]]:
    return [[fault.kind for fault in plan.take_before(scope)] for _ in range(count)]


def test_a_fault_hits_the_next_n_calls() -> None:
    plan = FaultPlan()
    plan.add(Fault("GetRecords", "throttle", times=2))
    assert kinds(plan, READ, 3) == [["throttle"], ["throttle"], []]


def test_a_fault_may_hit_every_third_call_for_ever() -> None:
    plan = FaultPlan()
    plan.add(Fault("GetRecords", "reset", times=None, every=3))
    assert kinds(plan, READ, 7) == [[], [], ["reset"], [], [], ["reset"], []]


async def test_an_outage_hits_every_call_for_a_span_of_the_clock() -> None:
    clock = ManualClock()
    plan = FaultPlan(clock)
    await clock.advance(10)
    plan.add(Fault("*", "reset", lasting_seconds=300))
    assert kinds(plan, READ, 3) == [["reset"]] * 3
    await clock.advance(299.5)
    assert kinds(plan, Scope("ListShards"), 1) == [["reset"]]
    await clock.advance(0.5)
    assert kinds(plan, READ, 1) == [[]]


async def test_a_fault_that_lasts_may_be_limited_in_number() -> None:
    plan = FaultPlan(ManualClock())
    plan.add(Fault("*", "reset", lasting_seconds=300, times=1))
    assert kinds(plan, READ, 2) == [["reset"], []]


@pytest.mark.parametrize("kind", ["empty", "no_next_iterator", "repeated", "reversed"])
def test_a_fault_of_pages_hits_no_other_operation(kind: Any) -> None:
    plan = FaultPlan()
    plan.add(Fault("*", kind))
    others = ("ListShards", "PutRecord", "SubscribeToShard")
    assert [plan.take_inside(Scope(operation)) for operation in others] == [None] * 3
    assert kinds(plan, READ, 1) == [[]]
    assert plan.take_inside(READ) is not None


@pytest.mark.parametrize(
    ("fault", "is_hit"),
    [
        (Fault("*", "reset"), True),
        (Fault("ListShards", "reset"), False),
        (Fault("GetRecords", "reset", stream="orders"), True),
        (Fault("GetRecords", "reset", stream="others"), False),
        (Fault("GetRecords", "reset", shard_id="shardId-000000000000"), True),
        (Fault("GetRecords", "reset", shard_id="shardId-000000000001"), False),
    ],
)
def test_a_fault_hits_only_its_scope(fault: Fault, is_hit: bool) -> None:
    plan = FaultPlan()
    plan.add(fault)
    assert bool(plan.take_before(READ)) is is_hit


def test_delays_add_up_and_one_other_fault_follows() -> None:
    plan = FaultPlan()
    for kind in ("delay", "delay", "throttle", "reset"):
        plan.add(Fault("GetRecords", kind, delay_seconds=1.0))
    assert kinds(plan, READ, 3) == [["delay", "delay", "throttle"], ["reset"], []]


def test_a_throttle_is_named_as_the_operation_names_it() -> None:
    fault = Fault("*", "throttle")
    codes = [fault.to_error(operation) for operation in ("GetRecords", "ListShards")]
    assert [error and error.code for error in codes] == [
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
    ]


def test_any_error_of_aws_can_be_scripted() -> None:
    fault = Fault("*", "error", code="KMSDisabledException", message="no key", status=400)
    error = fault.to_error("GetRecords")
    assert error is not None
    assert (error.code, error.message, error.status) == ("KMSDisabledException", "no key", 400)


@pytest.mark.parametrize("kind", ["error", "unheard_of"])
def test_a_meaningless_fault_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"code|kind"):
        Fault("*", kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fault",
    [
        {"operation": "GetRecords", "kind": "empty", "delay_seconds": 1.0},
        {"operation": "GetRecords", "kind": "no_next_iterator", "delay_seconds": 1.0},
        {"operation": "PutRecord", "kind": "reset", "shard_id": "shardId-000000000000"},
        {"operation": "PutRecords", "kind": "delay", "shard_id": "shardId-000000000000"},
    ],
)
def test_a_part_of_an_answer_cannot_be_delayed_or_broken(fault: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot delay or break an answer"):
        Fault(**fault)


def test_a_plan_describes_what_it_has_hit() -> None:
    plan = FaultPlan()
    plan.add(Fault("GetRecords", "reset", every=2))
    kinds(plan, READ, 3)
    (described,) = plan.describe()
    # Once it is spent it no longer matches.
    assert (described["matched_count"], described["hit_count"]) == (2, 1)


def test_the_busiest_second_is_found_wherever_it_begins() -> None:
    times = [0.0, 0.9, 1.0, 1.5, 1.8, 1.95, 3.0]
    calls = [Call("GetRecords", "s", "x", at, "") for at in times]
    assert busiest_second(calls) == 4
    assert busiest_second([]) == 0


def test_the_log_finds_calls_by_operation_stream_and_shard() -> None:
    log = CallLog()
    log.add(READ, 1.0, "")
    log.add(Scope("ListShards", "orders"), 2.0, "LimitExceededException")
    assert [call.at_seconds for call in log.find("GetRecords")] == [1.0]
    assert len(log.find(stream="orders")) == 2
    assert log.find(shard_id="shardId-000000000001") == []
    assert log.describe() == {
        "counts": {"GetRecords": 1, "ListShards": 1},
        "times": {
            "GetRecords": {"orders/shardId-000000000000": [1.0]},
            "ListShards": {"orders": [2.0]},
        },
    }
