"""A team of workers over a stream and a store that all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.integration.leases.lease_team import STREAM, SharedStore, Team

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.servers import Server


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SharedStore:
    """A file of sqlite, or what a test names: the fixture of a server, or of a DynamoDB."""
    name = getattr(request, "param", "sqlite")
    if name == "sqlite":
        properties = {"store": name, "sqlite.path": str(tmp_path / "leases.sqlite3")}
    elif name.startswith("dynamodb"):
        properties = {"store": "dynamodb", "dynamodb.endpoint": request.getfixturevalue(name)}
        properties["dynamodb.table"] = f"leases-{uuid4()}"
    else:
        server: Server = request.getfixturevalue(name)
        return SharedStore(server.properties, server)
    return SharedStore({f"kinesis.checkpoint.{key}": one for key, one in properties.items()}, None)


@pytest.fixture
def new_team(
    local_kinesis: LocalKinesis, store: SharedStore, tmp_path: Path
) -> Iterator[Callable[..., Team]]:
    """Make a team over so many shards, whose leases last for so many seconds."""
    teams: list[Team] = []

    def make(shards: int, failover_seconds: float, **options: str) -> Team:
        local_kinesis.create_stream(STREAM, shards)
        more = {f"kinesis.{key.replace('_', '.')}": value for key, value in options.items()}
        properties = {
            **local_kinesis.properties(STREAM),
            **store.properties,
            "kinesis.stream.initpos": "TRIM_HORIZON",
            # The servers of stores are shared with other tests.
            "kinesis.checkpoint.application": tmp_path.name,
            "kinesis.lease.enabled": "true",
            "kinesis.lease.failovermillis": str(round(failover_seconds * 1000)),
            **more,
        }
        teams.append(Team(local_kinesis, store, properties, tmp_path))
        return teams[-1]

    yield make
    for team in teams:
        team.close()
