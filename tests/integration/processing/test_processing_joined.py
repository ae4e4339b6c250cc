"""What a call sees of the transaction that its checkpoint is part of."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from aiobotocore.session import get_session
from botocore.exceptions import ClientError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from kinesis_publishers import ScanResult, read, scan
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.events import LeasesCounted
from tests.integration.processing.transaction_ledger import STREAM, ledgers
from tests.integration.processing.transaction_worker import SEEN

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_publishers import AsyncCheckpointing, Checkpointing, Record
    from tests.integration.processing.processing_support import Orders
    from tests.integration.processing.transaction_ledger import Ledger


@pytest.mark.parametrize("ends_with", [None, ZeroDivisionError])
@pytest.mark.parametrize("ledger", ledgers([("sqlite", "connection")]), indirect=True)
def test_a_look_at_the_leases_before_a_call_returns_does_not_set_its_checkpoint_back(
    ledger: Ledger, ends_with: type[Exception] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Renewals follow the commit, also where the call fails after it: nothing is repeated."""
    ledger.server.put_many(STREAM, [("key", b"%d" % number) for number in range(3)])
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
    ledger.server.put_many(STREAM, [("key", b"2")])
    scan(ledger.properties, process, events=on_event)
    ledger.check()


@pytest.mark.parametrize("is_session", [False, True])
def test_the_default_store_takes_transactions_on_its_file(orders: Orders, is_session: bool) -> None:
    orders.put(4, key="key")
    engine = sa.create_engine(f"sqlite:///{orders.path}")
    fails = [b"2"]

    def process(record: Record, checkpointer: Checkpointing) -> ScanResult | None:
        with Session(engine) if is_session else engine.connect() as opened, opened.begin():
            SEEN.create(opened.connection() if is_session else opened, checkfirst=True)
            opened.execute(SEEN.insert(), {"id": record.id})
            checkpointer.checkpoint(opened)
            if record.data in fails:
                raise ZeroDivisionError(fails.pop())
        return ScanResult.STOP if record.data == b"3" else None

    def written() -> int:
        with engine.connect() as connection:
            return len(connection.scalars(sa.select(SEEN.c.id)).all())

    with pytest.raises(ZeroDivisionError):
        scan(orders.properties(), process)
    assert written() == 2
    scan(orders.properties(), process)
    assert written() == 4


@pytest.mark.parametrize("ledger", ledgers([("dynamodb", "dynamodb")]), indirect=True)
async def test_an_asynchronous_client_makes_the_transaction_or_neither_part_of_it(
    ledger: Ledger,
) -> None:
    """A condition of the program's own that fails is its error, and the record comes again."""
    ledger.server.put_many(STREAM, [("key", b"0"), ("key", b"1")])
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    new_client = partial(
        get_session().create_client, "dynamodb", "us-east-1", endpoint_url=ledger.urls[0], **keys
    )

    async def write(most: int) -> None:
        async with new_client() as client, read(ledger.properties) as stream:
            async for record in stream:
                item = {"id": {"S": record.id}, "times": {"N": "1"}}
                put: dict[str, Any] = {"TableName": "seen", "Item": item}
                if len(ledger.written()) == most:
                    put["ConditionExpression"] = "attribute_exists(nothing)"
                await stream.checkpoint(client, TransactItems=[{"Put": put}])
                if record.data == b"1":
                    break

    with pytest.raises(ClientError, match="TransactionCanceledException"):
        await write(1)
    assert len(ledger.written()) == 1
    await write(2)
    ledger.check()


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("AUTOCOMMIT", "commits each statement by itself"),
        ("sqlite", "The transaction is of sqlite, and the checkpoints are in the table"),
        ("engine", "give a Connection, Session, AsyncConnection or AsyncSession"),
    ],
)
@pytest.mark.parametrize(
    "ledger", ledgers([("postgres", "connection"), ("mariadb", "connection")]), indirect=True
)
def test_what_is_no_transaction_of_the_store_is_refused(
    ledger: Ledger, kind: str, problem: str
) -> None:
    ledger.server.put_many(STREAM, [("key", b"0")])
    url, options = ledger.urls[0], {}
    if kind == "AUTOCOMMIT":
        options = {"isolation_level": "AUTOCOMMIT"}
    engine = sa.create_engine("sqlite://" if kind == "sqlite" else url, **options)

    def process(record: Record, checkpointer: Checkpointing) -> None:
        with engine.connect() as connection:
            checkpointer.checkpoint(engine if kind == "engine" else connection)

    with pytest.raises((CheckpointError, TypeError), match=problem):
        scan(ledger.properties, process)
    engine.dispose()
    assert ledger.written() == Counter()


@pytest.mark.parametrize(
    ("ledger", "face"),
    ledgers(
        [
            ("postgres", "connection", "scan"),
            ("postgres", "connection", "scan_async"),
            ("mariadb", "connection", "scan"),
            ("mariadb", "connection", "scan_async"),
            ("sqlite", "connection", "scan"),
        ]
    ),
    indirect=["ledger"],
)
def test_a_transaction_in_another_database_of_the_kind_is_refused(
    ledger: Ledger, face: str, tmp_path: Path
) -> None:
    ledger.server.put_many(STREAM, [("key", b"0")])
    is_async = face == "scan_async"
    url = sa.make_url(ledger.urls[is_async])
    others = {"postgresql": "postgres", "mysql": "mysql", "sqlite": f"{tmp_path}/other"}
    other = url.set(database=others[url.get_backend_name()])

    def process(record: Record, checkpointer: Checkpointing) -> None:
        with sa.create_engine(other, poolclass=sa.NullPool).connect() as connection:
            checkpointer.checkpoint(connection)

    async def process_async(record: Record, checkpointer: AsyncCheckpointing) -> None:
        async with create_async_engine(other, poolclass=sa.NullPool).connect() as connection:
            await checkpointer.checkpoint(connection)

    with pytest.raises(CheckpointError, match=r"a connection to the database of .*sql\.url"):
        scan(ledger.properties, process_async if is_async else process)
