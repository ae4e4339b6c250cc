"""What the stores on servers have in common: what is said when a server cannot be used."""

from __future__ import annotations

import asyncio
import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from kinesis_publishers import Properties
from kinesis_publishers.assembly import checkpoint_store_class
from kinesis_publishers.errors import AccessDeniedError, ConfigError, RetriesExhaustedError
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from tests.servers import (
    DATABASE,
    PASSWORD,
    SERVERS,
    USER,
    MariaDbServer,
    PostgresServer,
    PostgresStandby,
    RedisServer,
)
from tests.unit.checkpoints.checkpoint_support import KEY, WRITE, Address, refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers import Event
    from kinesis_publishers.abc import CheckpointStore
    from tests.servers import Server


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    running: Server = request.getfixturevalue(request.param)
    return running


def store_on(url: str, application: str = "billing", **context: Any) -> CheckpointStore:
    name = "redis" if url.startswith("redis") else "sql"
    properties = {
        "kinesis.streams": "orders",
        "kinesis.checkpoint.application": application,
        "kinesis.checkpoint.store": name,
        f"kinesis.checkpoint.{name}.url": url,
    }
    store = checkpoint_store_class(name)
    return store.from_properties(
        Properties.parse(properties), evolve(store_context(application), **context)
    )


async def test_an_application_is_removed_as_the_page_says(server: Server) -> None:
    page = Path(__file__).parents[3] / "docs" / "checkpoints.md"
    statements = dict(re.findall(r"^\| `(\w+)` \| `(D.+)` \|$", page.read_text(), re.MULTILINE))
    name = server.properties["kinesis.checkpoint.store"]
    async with store_on(server.url) as store, store_on(server.url, "reports") as other:
        for one in (store, other):
            await one.save([WRITE])
        server.execute(statements[name])
        assert await store.load() == {}
        assert set(await other.load()) == {KEY}


async def test_a_wrong_password_is_said_at_once(server: Server) -> None:
    refusal = await refusal_of(store_on(server.url.replace(PASSWORD, "wrong")), AccessDeniedError)
    assert "check user and password in kinesis.checkpoint." in refusal
    assert f"://127.0.0.1:{server.port}/" in refusal


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "redis"])
async def test_a_server_that_is_not_there_is_an_error_after_the_retries(scheme: str) -> None:
    url = f"{scheme}://user:{PASSWORD}@127.0.0.1:9/0"
    refusal = await refusal_of(store_on(url), RetriesExhaustedError)
    assert "check that the server is up, and kinesis.checkpoint." in refusal


async def test_a_parameter_that_the_driver_does_not_know_is_named(server: Server) -> None:
    refusal = await refusal_of(store_on(f"{server.url}?colour=red"), ConfigError)
    assert "unexpected keyword argument 'colour'" in refusal
    assert "remove or correct the parameter in kinesis.checkpoint." in refusal


async def outlive(
    url: str, application: str, code: str, begin: Callable[[], object], end: Callable[[], object]
) -> None:
    """Write while a server is in a state that ends when the store has met it."""
    has_met = asyncio.Event()

    def note(event: Event) -> None:
        if getattr(event, "code", None) == code:
            has_met.set()

    retry = evolve(store_context(application).retry, outage_seconds=60)
    async with store_on(url, application, events=note, retry=retry) as store:
        version = (await store.save([WRITE]))[KEY]
        begin()
        meeting = asyncio.create_task(has_met.wait())
        while not meeting.done():
            # A write may be faster than the state.
            saving = asyncio.create_task(store.save([evolve(WRITE, expected=version)]))
            await asyncio.wait({saving, meeting}, return_when=asyncio.FIRST_COMPLETED)
            if not meeting.done():
                version = (await saving)[KEY]
        end()
        version = (await saving)[KEY]
        assert (await store.load())[KEY].version == version


_REPLICAS = "CONFIG SET min-replicas-to-write"
_READ_ONLY = "default_transaction_read_only"
# By code: the server, what begins and ends it, and what is said if it stays.
STATES = {
    "READONLY": ("redis_server", "REPLICAOF 127.0.0.1 9", "REPLICAOF NO ONE", "name the primary"),
    "OOM": ("redis_server", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "raise maxmemory"),
    "ResponseError": ("redis_server", f"{_REPLICAS} 1", f"{_REPLICAS} 0", "NOREPLICAS"),
    "25006": (
        "postgres",
        f"ALTER SYSTEM SET {_READ_ONLY} = on; SELECT pg_reload_conf()",
        f"ALTER SYSTEM RESET {_READ_ONLY}; SELECT pg_reload_conf()",
        "name the primary",
    ),
    "1290": ("mariadb", "SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0", "name the primary"),
}


@pytest.mark.parametrize(
    "code",
    [pytest.param(code, marks=pytest.mark.xdist_group(one)) for code, (one, *_) in STATES.items()],
)
async def test_a_state_of_a_server_is_outlived_if_it_passes_and_said_if_it_stays(
    request: pytest.FixtureRequest, code: str
) -> None:
    fixture, begin, end, said = STATES[code]
    running: Server = request.getfixturevalue(fixture)

    def execute(statements: str) -> None:
        for one in statements.split("; "):
            running.execute(one)
        if isinstance(running, PostgresServer):
            # The server reads its configuration again when it comes to that.
            running.wait_until("on" if statements == begin else "off", f"SHOW {_READ_ONLY}")

    url = running.url
    if isinstance(running, MariaDbServer):
        execute(f"CREATE USER IF NOT EXISTS writer IDENTIFIED BY '{PASSWORD}'")
        execute(f"GRANT ALL ON {DATABASE}.* TO writer")
        url = url.replace(USER, "writer")
    await outlive(url, f"passing-{code}", code, lambda: execute(begin), lambda: execute(end))
    execute(begin)
    try:
        assert said in await refusal_of(store_on(url, code), RetriesExhaustedError)
    finally:
        execute(end)


async def test_after_a_failover_of_redis_the_new_primary_is_written_to() -> None:
    """The old one is a replica by then, to which the connection still leads."""
    at_once = ("--repl-diskless-sync-delay", "0")
    with (
        RedisServer(*at_once) as first,
        RedisServer("--replicaof", "127.0.0.1", str(first.port)) as second,
    ):
        first.wait_until("state=online", "INFO replication")
        async with Address(first).serving() as address:

            def fail_over() -> None:
                first.execute(f"FAILOVER TO 127.0.0.1 {second.port}")
                second.wait_until("role:master", "INFO replication")
                address.target = second

            url = first.url.replace(str(first.port), str(address.port))
            await outlive(url, "billing", "READONLY", fail_over, lambda: None)
        assert second.execute("HLEN kinesis-publishers:{billing}").strip() == "1"


@pytest.mark.long
async def test_a_standby_of_postgresql_is_waited_for_until_it_is_promoted() -> None:
    with PostgresServer() as first, ExitStack() as stack:
        async with Address(first).serving() as address:

            def fail_over() -> None:
                address.target = stack.enter_context(PostgresStandby(first))
                first.kill()

            await outlive(
                first.url.replace(str(first.port), str(address.port)),
                "billing",
                "25006",
                fail_over,
                lambda: address.target.execute("SELECT pg_promote()"),
            )
