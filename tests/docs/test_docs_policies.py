"""The IAM policies on the page allow what the code calls."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from botocore import xform_name
from botocore.endpoint_provider import EndpointProvider
from botocore.loaders import Loader

from kinesis_publishers import KinesisDataFetcher, RecordBatch, Shard
from tests.docs.doc_pages import ROOT, blocks_of

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_PAGE = ROOT / "docs" / "iam-policies.md"
_SERVICES = {"kinesis": "2013-12-02", "dynamodb": "2012-08-10", "cloudwatch": "2010-08-01"}
# Where each service is called; what is not there yet calls nothing.
_CALLERS = {
    "kinesis": "aws/*.py",
    "dynamodb": "checkpoints/*dynamodb*.py",
    "cloudwatch": "metrics/*cloudwatch*.py",
}


def policies() -> dict[str, list[dict[str, Any]]]:
    """Return the statements of each policy by its heading."""
    headings = [
        (page_line, text.removeprefix("## "))
        for page_line, text in enumerate(_PAGE.read_text("utf-8").splitlines(), 1)
        if text.startswith("## ")
    ]
    found: dict[str, list[dict[str, Any]]] = {}
    for block in (block for block in blocks_of(_PAGE) if block.language == "json"):
        heading = max(one for one in headings if one[0] < block.line)[1]
        found[heading] = json.loads(block.code)["Statement"]
    return found


def actions_of(statements: list[dict[str, Any]], service: str) -> set[str]:
    """Return the operations of a service that some statements allow."""
    listed: set[str] = set()
    for statement in statements:
        actions = statement["Action"]
        listed |= {actions} if isinstance(actions, str) else set(actions)
    prefix = f"{service}:"
    return {action.removeprefix(prefix) for action in listed if action.startswith(prefix)}


def operations_of(service: str) -> set[str]:
    version = _SERVICES[service]
    return set(Loader().load_service_model(service, "service-2", version)["operations"])


def called_in(path: Path, operations: set[str]) -> set[str]:
    """Return the operations that a module names, or whose methods it calls."""
    text = path.read_text(encoding="utf-8")
    called = set(re.findall(r"\.(\w+)\(", text))
    quoted = set(re.findall(r'"(\w+)"', text))
    named = called | quoted
    return {one for one in operations if one in quoted or xform_name(one) in named}


@pytest.mark.parametrize("heading", policies())
def test_a_policy_is_complete(heading: str) -> None:
    for statement in policies()[heading]:
        assert statement["Effect"] == "Allow"
        assert statement["Action"]
        assert statement["Resource"]
        assert statement["Sid"].isalnum()


@pytest.mark.parametrize("service", _SERVICES)
def test_the_policies_name_operations_that_exist(service: str) -> None:
    named = {one for each in policies().values() for one in actions_of(each, service)}
    assert named
    assert named <= operations_of(service)


@pytest.mark.parametrize("service", _SERVICES)
def test_every_operation_that_the_code_names_is_in_a_policy(service: str) -> None:
    allowed = {one for each in policies().values() for one in actions_of(each, service)}
    sources = (ROOT / "kinesis_publishers").glob(_CALLERS[service])
    called = {one for path in sources for one in called_in(path, operations_of(service))}
    # It has no action of its own, but those of its items.
    assert called - {"TransactWriteItems"} <= allowed
    assert called or service != "kinesis"


@pytest.mark.parametrize(
    ("heading", "properties"),
    [
        ("Polling", {}),
        (
            "Enhanced fan-out, LAZY or EAGER",
            {"kinesis.stream.recordpublisher": "EFO", "kinesis.stream.efo.consumername": "reports"},
        ),
        (
            "Enhanced fan-out, NONE",
            {"kinesis.stream.recordpublisher": "EFO", "kinesis.stream.efo.registration": "NONE"},
        ),
    ],
)
def test_a_reader_calls_nothing_that_its_policy_leaves_out(
    local_kinesis: LocalKinesis, heading: str, properties: dict[str, str]
) -> None:
    local_kinesis.create_stream("orders")
    local_kinesis.put_many("orders", [("key", b"value")])
    if heading.endswith("NONE"):
        arn = local_kinesis.register_consumer("orders", "reports")
        properties = properties | {"kinesis.stream.efo.consumerarn.orders": arn}
    position = {"kinesis.stream.initpos": "TRIM_HORIZON"}
    asyncio.run(read_one(local_kinesis.properties("orders") | position | properties))
    called = {call.operation for call in local_kinesis.calls()}
    assert {"DescribeStreamSummary", "ListShards"} < called
    assert called <= actions_of(policies()[heading], "kinesis")


async def read_one(properties: dict[str, str]) -> None:
    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        fetcher.stop()

    async with KinesisDataFetcher.from_properties(properties, on_batch) as fetcher:
        await fetcher.run()


def test_the_hosts_are_those_that_botocore_calls() -> None:
    resolve = EndpointProvider(
        Loader().load_service_model("kinesis", "endpoint-rule-set-1"),
        Loader().load_data("partitions"),
    ).resolve_endpoint
    stream = {"StreamARN": "arn:aws:kinesis:REGION:123456789012:stream/orders"}
    for operation, fields in (("data", stream), ("control", stream), ("control", {})):
        called = resolve(Region="us-east-1", OperationType=operation, **fields).url
        host = called.replace("123456789012", "ACCOUNT").replace("us-east-1", "REGION")
        assert f"`{host.removeprefix('https://')}`" in _PAGE.read_text("utf-8"), host
    model = Loader().load_service_model("kinesis", "service-2")["operations"]
    kinds = {name: one["staticContextParams"]["OperationType"] for name, one in model.items()}
    (row,) = re.findall(r"^\|(.*)\| `ACCOUNT\.data-", _PAGE.read_text("utf-8"), re.MULTILINE)
    # A later botocore knows queues, too.
    data = {name for name, kind in kinds.items() if kind["value"] == "data"}
    read = {name for name in data if "Queue" not in name}
    assert set(re.findall(r"`(\w+)`", row)) == read - {"PutRecord"}
