"""What the stores on servers have in common: what is said when a server cannot be used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import Properties
from kinesis_publishers.assembly import checkpoint_store_class
from kinesis_publishers.errors import AccessDeniedError, ConfigError, RetriesExhaustedError
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from tests.servers import PASSWORD, SERVERS
from tests.unit.checkpoints.checkpoint_support import KEY, WRITE, refusal_of

if TYPE_CHECKING:
    from kinesis_publishers.abc import CheckpointStore
    from tests.servers import Server


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    running: Server = request.getfixturevalue(request.param)
    return running


def store_on(url: str, application: str = "billing") -> CheckpointStore:
    name = "redis" if url.startswith("redis") else "sql"
    properties = {
        "kinesis.streams": "orders",
        "kinesis.checkpoint.application": application,
        "kinesis.checkpoint.store": name,
        f"kinesis.checkpoint.{name}.url": url,
    }
    store = checkpoint_store_class(name)
    return store.from_properties(Properties.parse(properties), store_context(application))


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
