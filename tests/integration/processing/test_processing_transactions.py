"""Each record is in the database once, whenever its reader is killed."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.processing.transaction_ledger import ledgers

if TYPE_CHECKING:
    import random

    from tests.integration.processing.transaction_ledger import Ledger
    from tests.servers import Server

USUAL: Final = [
    ("sqlite", "connection", "scan"),
    ("postgres", "session", "records"),
    ("postgres", "connection", "scan_async"),
    ("mariadb", "connection", "batch"),
    ("dynamodb", "dynamodb", "scan"),
]
MORE: Final = [
    ("sqlite", "session", "records"),
    ("postgres", "session", "read"),
    ("postgres", "connection", "scan"),
    ("mariadb", "session", "scan"),
    ("mariadb", "connection", "read"),
    ("dynamodb", "dynamodb", "records"),
]


def kill_and_go_on(ledger: Ledger, face: str, chance: random.Random, kills: int) -> None:
    """Kill the only reader so often, each time after some transactions; then let one finish."""
    for _ in range(kills):
        # The stand-in for DynamoDB makes one call at a time.
        ledger.put_records(12 if ledger.kind == "dynamodb" else 100)
        worker = ledger.start(face)
        ledger.wait_for_transactions(worker, chance.randrange(1, 12))
        worker.kill()
        ledger.end(worker, -9)
    worker = ledger.start(face)
    ledger.wait_until_all_are_written(worker)
    worker.terminate()
    ledger.end(worker, 0, -15)
    ledger.check()


@pytest.mark.parametrize(("ledger", "face"), ledgers(USUAL), indirect=["ledger"])
def test_a_reader_that_is_killed_writes_each_record_once(
    ledger: Ledger, face: str, chance: random.Random
) -> None:
    kill_and_go_on(ledger, face, chance, 4)


def share_and_lose(ledger: Ledger, chance: random.Random, rounds: int) -> None:
    """Let workers with leases be killed, end, and stand still for longer than their leases last."""
    # The stand-in for DynamoDB makes one call at a time.
    seconds = 4 if ledger.kind == "dynamodb" else 1
    ledger.properties |= {
        "kinesis.lease.enabled": "true",
        "kinesis.lease.failovermillis": f"{seconds}000",
    }
    # In a file of SQLite, one that stands still in a transaction holds all others up.
    choices = ["kill", "end", *(["pause"] if "sqlite" not in ledger.urls[0] else [])]
    workers = [ledger.start("scan"), ledger.start("scan")]
    with ledger.writing():
        for _ in range(rounds):
            one = workers.pop(0)
            ledger.wait_for_transactions(one, chance.randrange(1, 9))
            workers.append(ledger.start("scan"))
            what = chance.choice(choices)
            if what == "pause":
                one.send_signal(signal.SIGSTOP)
                # What it was about to commit is another worker's now.
                ledger.wait_for_transactions(workers[0], 30)
                one.send_signal(signal.SIGCONT)
            if what == "kill":
                one.kill()
            else:
                one.terminate()
            ledger.end(one, 0, -9)
    ledger.wait_until_all_are_written(*workers)
    for one in workers:
        one.terminate()
        ledger.end(one, 0)
    ledger.check()


SHARED: Final = [
    ("sqlite", "connection", "scan"),
    ("postgres", "connection", "scan"),
    ("mariadb", "session", "scan"),
    ("dynamodb", "dynamodb", "scan"),
]


@pytest.mark.long
@pytest.mark.parametrize(("ledger", "face"), ledgers(SHARED), indirect=["ledger"])
def test_workers_that_lose_their_shards_cannot_commit(
    ledger: Ledger, face: str, chance: random.Random
) -> None:
    share_and_lose(ledger, chance, 5)


@pytest.mark.soak
@pytest.mark.parametrize(("ledger", "face"), ledgers(SHARED), indirect=["ledger"])
def test_in_a_long_history_workers_that_lose_their_shards_cannot_commit(
    ledger: Ledger, face: str, chance: random.Random
) -> None:
    share_and_lose(ledger, chance, 60)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))]
)
@pytest.mark.parametrize("ledger", [("postgres", "connection")], indirect=True)
def test_a_database_that_is_killed_has_each_record_once(
    ledger: Ledger, name: str, request: pytest.FixtureRequest, chance: random.Random
) -> None:
    database: Server = request.getfixturevalue(name)
    worker = ledger.start("scan")
    with ledger.writing():
        for _ in range(5):
            ledger.wait_for_transactions(worker, chance.randrange(1, 20))
            database.kill()
            database.start()
    ledger.wait_until_all_are_written(worker)
    worker.terminate()
    ledger.end(worker, 0)
    ledger.check()


@pytest.mark.soak
@pytest.mark.parametrize(("ledger", "face"), ledgers(USUAL + MORE), indirect=["ledger"])
def test_a_hundred_kills_write_each_record_once(
    ledger: Ledger, face: str, chance: random.Random
) -> None:
    kill_and_go_on(ledger, face, chance, 100)
