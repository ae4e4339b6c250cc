"""A local stream that is read with the simple API, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from tests.integration.processing.processing_support import STREAM, Orders
from tests.integration.processing.transaction_ledger import DRIVERS, Ledger, client_of
from tests.integration.processing.transaction_worker import SEEN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import Server


@pytest.fixture
def page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each page be a delivery of its own, however long the one before takes."""
    monkeypatch.setattr("kinesis_publishers.engine.shard_consumer._ENOUGH_RECORDS", 1)


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Orders]:
    """A stream of two shards, and a file for the checkpoints of its readers."""
    with LocalKinesis.in_thread(Limits.off()) as server:
        server.create_stream(STREAM, 2)
        yield Orders(server, tmp_path / "checkpoints.sqlite3")


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
        sync_driver, async_driver = DRIVERS[name]
        urls = (f"{sync_driver}:{rest}", f"{async_driver}:{rest}")
        stored = {"kinesis.checkpoint.store": "sql", "kinesis.checkpoint.sql.url": plain}
        engine = sa.create_engine(urls[0])
        SEEN.metadata.drop_all(engine)
        SEEN.metadata.create_all(engine)
    with LocalKinesis.in_thread(Limits.off()) as server:
        server.create_stream(STREAM, 4)
        properties = {
            **server.properties(STREAM),
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
            process.wait()
