"""Each record is in the database once, whenever its reader is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import boto3
import pytest
import sqlalchemy as sa
from attrs import define, field

from kinesis_publishers import ScanResult, scan
from kinesis_publishers.events import LeasesCounted
from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from tests.integration.processing.transaction_worker import SEEN

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from kinesis_publishers import Checkpointing, Record
    from tests.servers import Server

_PROGRAM: Final = Path(__file__).with_name("transaction_worker.py")
_STREAM: Final = "orders"
_DEADLINE_SECONDS: Final = 60.0

# By name of a store: the user's own driver, plain and asynchronous.
_DRIVERS: Final = {
    "postgres": ("postgresql+psycopg2", "postgresql+asyncpg"),
    "mariadb": ("mysql+pymysql", "mysql+asyncmy"),
    "sqlite": ("sqlite", ""),
}


@define(eq=False)
class Ledger:
    """A stream, and the place where its records are written with their checkpoints."""

    server: LocalKinesis
    kind: str
    urls: tuple[str, str]
    properties: dict[str, str]
    log: Path
    processes: list[subprocess.Popen[str]] = field(factory=list)

    def put_records(self, count: int) -> None:
        self.server.put_many(_STREAM, [(f"key-{one % 37}", b"%d" % one) for one in range(count)])

    @property
    def put(self) -> list[str]:
        """The ids of the records."""
        return [
            f"{_STREAM}/{shard}/{one.sequence_number}/"
            for shard, stored in self.server.records(_STREAM).items()
            for one in stored
        ]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Put records all the time."""
        is_over = threading.Event()

        def write() -> None:
            while not is_over.wait(0.5 if self.kind == "dynamodb" else 0.05):
                self.put_records(10)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            is_over.set()
            writer.join()

    def start(self, face: str) -> subprocess.Popen[str]:
        is_async = face in {"read", "scan_async"}
        arguments = {
            "face": face,
            "kind": self.kind,
            "url": self.urls[is_async],
            "properties": self.properties,
        }
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), json.dumps(arguments)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.processes.append(process)
        return process

    def wait_for_transactions(self, worker: subprocess.Popen[str], count: int) -> None:
        """Return when a worker has begun so many more transactions."""
        assert worker.stdout is not None
        for _ in range(count):
            assert worker.stdout.readline(), self.said

    @property
    def said(self) -> str:
        """The end of what the workers have logged."""
        return self.log.read_text()[-6000:]

    def end(self, worker: subprocess.Popen[str], *codes: int) -> None:
        """Return when a worker that was asked to end, or killed, has ended."""
        worker.communicate(timeout=60)
        assert worker.returncode in codes, self.said

    def written(self) -> Counter[str]:
        """Return how often each record was written."""
        if self.kind == "dynamodb":
            pages = client_of(self.urls[0]).get_paginator("scan").paginate(TableName="seen")
            items = [item for page in pages for item in page["Items"]]
            return Counter({one["id"]["S"]: int(one["times"]["N"]) for one in items})
        engine = sa.create_engine(self.urls[0])
        with closing(engine.connect()) as connection:
            return Counter(connection.scalars(sa.select(SEEN.c.id)).all())

    def wait_until_all_are_written(self, *workers: subprocess.Popen[str]) -> None:
        until = time.monotonic() + _DEADLINE_SECONDS
        while (missing := len(self.put) - len(self.written())) > 0:
            assert all(one.poll() is None for one in workers), self.said
            assert time.monotonic() < until, f"{missing} are missing: {self.said}"
            time.sleep(0.1)  # The workers tell nothing else.

    def check(self) -> None:
        written = self.written()
        assert {one: count for one, count in written.items() if count > 1} == {}, "written twice"
        assert sorted(written) == sorted(self.put)


def client_of(url: str) -> Any:
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    return boto3.client("dynamodb", "us-east-1", endpoint_url=url, **keys)


@pytest.fixture
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A stream of two shards, and a database of the kind that the test names."""
    name, kind = request.param
    if name == "dynamodb":
        url = request.getfixturevalue("dynamodb_url")
        urls = (url, url)
        stored = {
            "kinesis.checkpoint.store": "dynamodb",
            "kinesis.checkpoint.dynamodb.endpoint": url,
            "kinesis.checkpoint.dynamodb.table": f"checkpoints-{tmp_path.name}",
        }
        client = client_of(url)
        if "seen" in client.list_tables()["TableNames"]:
            client.delete_table(TableName="seen")
        client.create_table(
            TableName="seen",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    else:
        if name == "sqlite":
            plain = f"sqlite:///{tmp_path}/app.sqlite3"
        else:
            database: Server = request.getfixturevalue(name)
            plain = database.url
        rest = plain.partition(":")[2]
        sync_driver, async_driver = _DRIVERS[name]
        urls = (f"{sync_driver}:{rest}", f"{async_driver}:{rest}")
        stored = {"kinesis.checkpoint.store": "sql", "kinesis.checkpoint.sql.url": plain}
        engine = sa.create_engine(urls[0])
        SEEN.metadata.drop_all(engine)
        SEEN.metadata.create_all(engine)
    with LocalKinesis.in_thread(Limits.off()) as server:
        server.create_stream(_STREAM, 4)
        properties = {
            **server.properties(_STREAM),
            **stored,
            "kinesis.stream.initpos": "TRIM_HORIZON",
            "kinesis.shard.getrecords.intervalmillis": "20",
            "kinesis.checkpoint.intervalmillis": "50",
            "kinesis.checkpoint.application": tmp_path.name,
        }
        made = Ledger(server, kind, urls, properties, tmp_path / "log")
        yield made
        for process in made.processes:
            process.kill()
            process.communicate()


def _parameters(pairs: list[tuple[str, str, str]]) -> list[Any]:
    # One process has the server of a kind, and the table that its tests share.
    return [
        pytest.param((name, kind), face, marks=pytest.mark.xdist_group(name))
        for name, kind, face in pairs
    ]


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
        ledger.put_records(100)
        worker = ledger.start(face)
        ledger.wait_for_transactions(worker, chance.randrange(1, 12))
        worker.kill()
        ledger.end(worker, -9)
    worker = ledger.start(face)
    ledger.wait_until_all_are_written(worker)
    worker.terminate()
    ledger.end(worker, 0, -15)
    ledger.check()


@pytest.mark.parametrize(("ledger", "face"), _parameters(USUAL), indirect=["ledger"])
def test_a_reader_that_is_killed_writes_each_record_once(
    ledger: Ledger, face: str, chance: random.Random
) -> None:
    kill_and_go_on(ledger, face, chance, 4)


@pytest.mark.parametrize("ends_with", [None, ZeroDivisionError])
@pytest.mark.parametrize(
    "ledger",
    [pytest.param(("sqlite", "connection"), marks=pytest.mark.xdist_group("sqlite"))],
    indirect=True,
)
def test_a_look_at_the_leases_before_a_call_returns_does_not_set_its_checkpoint_back(
    ledger: Ledger, ends_with: type[Exception] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Renewals follow the commit, also where the call fails after it: nothing is repeated."""
    ledger.server.put_many(_STREAM, [("key", b"%d" % number) for number in range(3)])
    ledger.properties |= {"kinesis.lease.enabled": "true", "kinesis.lease.failovermillis": "1000"}
    engine = sa.create_engine(ledger.urls[0])
    looks: list[object] = []
    has_looked = threading.Event()

    def on_event(event: object) -> None:
        looks.append(event) if isinstance(event, LeasesCounted) else None
        has_looked.set()

    def process(record: Record, checkpointer: Checkpointing) -> ScanResult | None:
        with engine.begin() as connection:
            connection.execute(SEEN.insert(), {"id": record.id})
            checkpointer.checkpoint(connection)
        before = len(looks)
        while len(looks) < before + 4:
            has_looked.clear()
            assert has_looked.wait(30)
        if record.data == b"2":
            return ScanResult.STOP
        if ends_with is not None:
            raise ends_with
        return None

    scan(ledger.properties, process, events=on_event)
    ledger.check()
    assert ("was committed, and this was raised" in caplog.text) is (ends_with is not None)
    ledger.server.put_many(_STREAM, [("key", b"2")])
    scan(ledger.properties, process, events=on_event)
    ledger.check()


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
@pytest.mark.parametrize(("ledger", "face"), _parameters(SHARED), indirect=["ledger"])
def test_workers_that_lose_their_shards_cannot_commit(
    ledger: Ledger, face: str, chance: random.Random
) -> None:
    share_and_lose(ledger, chance, 5)


@pytest.mark.soak
@pytest.mark.parametrize(("ledger", "face"), _parameters(SHARED), indirect=["ledger"])
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
@pytest.mark.parametrize(("ledger", "face"), _parameters(USUAL + MORE), indirect=["ledger"])
def test_a_hundred_kills_write_each_record_once(
    ledger: Ledger, face: str, chance: random.Random
) -> None:
    kill_and_go_on(ledger, face, chance, 100)
