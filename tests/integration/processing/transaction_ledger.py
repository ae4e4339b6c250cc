"""Streams whose records are written into a database, with their checkpoints, by processes."""

from __future__ import annotations

import json
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

from tests.integration.processing.transaction_worker import SEEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

__all__ = ["DRIVERS", "STREAM", "Ledger", "client_of", "ledgers"]

_PROGRAM: Final = Path(__file__).with_name("transaction_worker.py")
STREAM: Final = "orders"
_DEADLINE_SECONDS: Final = 60.0
# So many records wait for workers that are slower than the writer.
_WAITING: Final = 300

# By name of a store: the user's own driver, plain and asynchronous.
DRIVERS: Final = {
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
    # Counts the transactions that each process has begun and no test has waited for.
    begun: dict[int, threading.Semaphore] = field(factory=dict)
    # Of all transactions of all processes.
    lines: list[str] = field(factory=list)
    put_count: int = 0

    def put_records(self, count: int) -> None:
        self.put_count += count
        self.server.put_many(STREAM, [(f"key-{one % 37}", b"%d" % one) for one in range(count)])

    @property
    def put(self) -> list[str]:
        """The ids of the records."""
        return [
            f"{STREAM}/{shard}/{one.sequence_number}/"
            for shard, stored in self.server.records(STREAM).items()
            for one in stored
        ]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Put records all the time, unless many wait already."""
        is_over = threading.Event()

        def write() -> None:
            while not is_over.wait(0.5 if self.kind == "dynamodb" else 0.05):
                if self.put_count - len(self.lines) < _WAITING:
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
        self.begun[process.pid] = begun = threading.Semaphore(0)
        # A worker whose pipe is full would stand still.
        threading.Thread(target=_count_lines, args=(process, begun, self.lines)).start()
        return process

    def wait_for_transactions(self, worker: subprocess.Popen[str], count: int) -> None:
        """Return when a worker has begun so many more transactions."""
        for _ in range(count):
            assert self.begun[worker.pid].acquire(timeout=_DEADLINE_SECONDS), self.said

    @property
    def said(self) -> str:
        """The end of what the workers have logged."""
        return self.log.read_text()[-6000:]

    def end(self, worker: subprocess.Popen[str], *codes: int) -> None:
        """Return when a worker that was asked to end, or killed, has ended."""
        worker.wait(_DEADLINE_SECONDS)
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
        before, since = -1, time.monotonic()
        while (missing := len(self.put) - len(self.written())) > 0:
            if missing != before:
                before, since = missing, time.monotonic()
            assert all(one.poll() is None for one in workers), self.said
            assert time.monotonic() < since + _DEADLINE_SECONDS, f"{missing} missing: {self.said}"
            time.sleep(0.2)  # The workers tell nothing else.

    def check(self) -> None:
        written = self.written()
        assert {one: count for one, count in written.items() if count > 1} == {}, "written twice"
        assert sorted(written) == sorted(self.put)


def _count_lines(
    process: subprocess.Popen[str], begun: threading.Semaphore, lines: list[str]
) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.append(line)
            begun.release()


def client_of(url: str) -> Any:
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    return boto3.client("dynamodb", "us-east-1", endpoint_url=url, **keys)


def ledgers(pairs: list[tuple[str, ...]]) -> list[Any]:
    """Return parameters of tests: the name and the kind of a ledger, and perhaps a face."""
    # One process has the server of a kind, and the table that its tests share.
    return [
        pytest.param((name, kind), *face, marks=pytest.mark.xdist_group(name))
        for name, kind, *face in pairs
    ]
