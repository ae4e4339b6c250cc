"""The command ``multilang`` on the table of an application that workers of the KCL serve, too."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.cli.daemon_process import DaemonProcess
from tests.integration.leases.kcl.kcl_application import FAILOVER_MILLIS, STREAM, lease_row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.integration.leases.kcl.kcl_application import KclApplication, Row
    from tests.integration.leases.kcl.worker_events import WorkerEvents

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("kcl")]

_PROCESSOR = Path(__file__).with_name("checkpointing_processor.py")


def put_numbers(kcl: KclApplication, first: int) -> list[int]:
    numbers = list(range(first, first + 20))
    kcl.server.put_many(STREAM, [(str(one), b"%d" % one) for one in numbers])
    return numbers


def owned_by(rows: dict[str, Row], worker: str) -> int:
    owners = [row for row in rows.values() if row.get("leaseOwner") == {"S": worker}]
    return sum("checkpointOwner" not in row for row in owners)


def properties(kcl: KclApplication) -> dict[str, str]:
    ours = kcl.server.properties(STREAM)
    return {
        "executableName": f"{sys.executable} -SE {_PROCESSOR}",
        "streamName": STREAM,
        "applicationName": kcl.name,
        "workerId": "ours",
        "regionName": ours.pop("aws.region"),
        "kinesisEndpoint": ours.pop("aws.endpoint"),
        "dynamoDBEndpoint": kcl.dynamodb.meta.endpoint_url,
        "initialPositionInStream": "TRIM_HORIZON",
        "retrievalMode": "POLLING",
        "failoverTimeMillis": str(FAILOVER_MILLIS),
        **{key: value for key, value in ours.items() if key.startswith("aws.")},
    }


def read_by(said: str, theirs: Iterable[WorkerEvents]) -> list[int]:
    """Return the numbers that our processors and workers of the KCL have read."""
    here = [int(one) for one in re.findall(r"^record (\d+)$", said, re.MULTILINE)]
    return here + [int(one.data) for worker in theirs for one in worker.records]


def test_a_change_from_the_kcl_and_back_loses_and_repeats_nothing(
    kcl: KclApplication, tmp_path: Path
) -> None:
    """Both serve the application while one replaces the other, in either direction."""
    kcl.server.create_stream(STREAM, 2)
    kcl.create_table(lease_row(0, entityType="LEASE"), lease_row(1, entityType="LEASE"))
    written = put_numbers(kcl, 0)
    theirs = [kcl.start("theirs")]

    def has_all(said: str) -> bool:
        return set(read_by(said, theirs)) == set(written)

    kcl.wait_until(lambda: len(theirs[0].records) == len(written))
    with DaemonProcess.running(tmp_path / "app.properties", properties(kcl)) as process:
        kcl.wait_for_rows(lambda rows: owned_by(rows, "ours") == 1)
        written += put_numbers(kcl, 100)
        process.wait_until(has_all)
        theirs[0].stop()
        kcl.wait_for_rows(lambda rows: owned_by(rows, "ours") == 2)
        written += put_numbers(kcl, 200)
        process.wait_until(has_all)
        theirs.append(kcl.start("theirs again"))
        kcl.wait_for_rows(lambda rows: owned_by(rows, "theirs again") == 1)
        assert process.stop() == 0
        said = process.said
    kcl.wait_for_rows(lambda rows: owned_by(rows, "theirs again") == 2)
    written += put_numbers(kcl, 300)
    kcl.wait_until(lambda: has_all(said))
    assert sorted(read_by(said, theirs)) == written
