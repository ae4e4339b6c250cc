"""``consumers prune``: removes what workers have left, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.model import Lease
from tests.unit.cli.cli_support import ORDERS
from tests.unit.cli.lease_support import WITH_LEASES, Application, after

if TYPE_CHECKING:
    from click.testing import Result


@pytest.fixture
def consumer_arn(application: Application) -> str:
    application.server.register_consumer(ORDERS, "by-hand")
    return application.server.register_consumer(ORDERS, "billing")


def prune(application: Application) -> Result:
    return application.run("consumers prune", "--yes", *WITH_LEASES)


@pytest.mark.parametrize("owner", [None, "a worker that was killed"], ids=["released", "killed"])
def test_what_workers_have_left_is_removed(
    application: Application, consumer_arn: str, owner: str | None
) -> None:
    application.save(
        application.checkpoint(0, after(7), Lease(owner=owner, consumer_arn=consumer_arn)),
        application.checkpoint(1, after(7), Lease()),
    )
    result = prune(application)
    assert result.exit_code == 0, result.stderr
    assert application.server.consumers(ORDERS).keys() == {"by-hand"}
    again = prune(application)
    assert (again.exit_code, "nothing to do" in again.stderr) == (0, True)


def test_nothing_is_removed_while_a_worker_is_alive(
    application: Application, consumer_arn: str
) -> None:
    application.save(
        application.checkpoint(0, after(7), Lease(owner="one", consumer_arn=consumer_arn))
    )
    with application.worker(0):
        result = prune(application)
    assert result.exit_code == 1
    assert "are being read" in result.stderr
    assert application.server.consumers(ORDERS).keys() == {"by-hand", "billing"}


def test_nothing_is_removed_that_no_worker_has_registered(
    application: Application, consumer_arn: str
) -> None:
    application.save(application.checkpoint(0, after(7), Lease()))
    result = prune(application)
    assert (result.exit_code, "nothing to do" in result.stderr) == (0, True)
    assert application.server.consumers(ORDERS).keys() == {"by-hand", "billing"}
