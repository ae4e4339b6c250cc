"""Writes each record into a table, or an item, in one transaction with its checkpoint.

It is called with JSON: ``face`` (scan, scan_async, batch, read, records), ``kind`` (connection,
session, dynamodb), ``url`` of the user's own connection, and ``properties``. It prints a line
before each transaction.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import boto3
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from kinesis_publishers import RetryOnError, read, records, scan
from kinesis_publishers.errors import StaleCheckpointError
from kinesis_publishers.progress import single_reader
from kinesis_publishers.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_publishers import Record

# A server that is killed takes its time to start.
PATIENT = RetryOnError(
    policy=RetryPolicy(max_retries=200, base_seconds=0.2, max_seconds=0.5, exponent=2.0)
)

SEEN = sa.Table("seen", sa.MetaData(), sa.Column("id", sa.String(200)))


# A worker that stands still in a transaction must not hold the others up.
_LIMITS = {
    "postgresql+psycopg2": {"options": "-c idle_in_transaction_session_timeout=1000"},
    "mysql+pymysql": {"init_command": "SET SESSION idle_transaction_timeout = 1"},
    "sqlite": {},
}


def say_begun() -> None:
    sys.stdout.write("begun\n")
    sys.stdout.flush()


class Sink:
    """Where records go: ``write`` for plain functions, ``write_async`` for others."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url
        if kind == "dynamodb":
            keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
            self.client = boto3.client("dynamodb", "us-east-1", endpoint_url=url, **keys)
        elif "+async" not in url and "+aio" not in url:
            self.engine = sa.create_engine(url, connect_args=_LIMITS[url.partition(":")[0]])
        else:
            self.async_engine = create_async_engine(url)

    def write(self, some: Iterable[Record], checkpointer: Any) -> None:
        ids = [record.id for record in some]
        say_begun()
        if self.kind == "dynamodb":
            # Each transaction counts up: a second one of the record would show.
            counts = [
                {
                    "Update": {
                        "TableName": "seen",
                        "Key": {"id": {"S": one}},
                        "UpdateExpression": "ADD times :one",
                        "ExpressionAttributeValues": {":one": {"N": "1"}},
                    }
                }
                for one in ids
            ]
            checkpointer.checkpoint(self.client, TransactItems=counts)
            return
        rows = [{"id": one} for one in ids]
        if self.kind == "session":
            with Session(self.engine) as session, session.begin():
                session.execute(SEEN.insert(), rows)
                checkpointer.checkpoint(session)
        else:
            with self.engine.begin() as connection:
                connection.execute(SEEN.insert(), rows)
                checkpointer.checkpoint(connection)

    async def write_async(self, some: Iterable[Record], checkpointer: Any) -> None:
        rows = [{"id": record.id} for record in some]
        say_begun()
        if self.kind == "session":
            async with AsyncSession(self.async_engine) as session, session.begin():
                await session.execute(SEEN.insert(), rows)
                await checkpointer.checkpoint(session)
        else:
            async with self.async_engine.begin() as connection:
                await connection.execute(SEEN.insert(), rows)
                await checkpointer.checkpoint(connection)


async def read_all(properties: dict[str, str], sink: Sink) -> None:
    async with read(properties) as stream:
        async for record in stream:
            try:
                await sink.write_async([record], stream)
            except StaleCheckpointError:
                continue  # The record is another worker's.


def main(face: str, kind: str, url: str, properties: dict[str, str]) -> None:
    # A reader that was killed is known to be dead sooner.
    single_reader._LOOK_SECONDS = single_reader._LIFE_SECONDS = 0.05  # type: ignore[misc] # noqa: SLF001
    sink = Sink(kind, url)

    def process(record: Record, checkpointer: Any) -> None:
        sink.write([record], checkpointer)

    def process_batch(batch: Any, checkpointer: Any) -> None:
        sink.write(batch, checkpointer)

    async def process_async(record: Record, checkpointer: Any) -> None:
        await sink.write_async([record], checkpointer)

    if face == "scan":
        scan(properties, process, workers=2, on_error=PATIENT)
    elif face == "batch":
        scan(properties, process_batch, per_batch=True, max_records=7, on_error=PATIENT)
    elif face == "scan_async":
        scan(properties, process_async, on_error=PATIENT)
    elif face == "read":
        asyncio.run(read_all(properties, sink))
    else:
        with records(properties) as stream:
            for record in stream:
                try:
                    sink.write([record], stream)
                except StaleCheckpointError:
                    continue


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
