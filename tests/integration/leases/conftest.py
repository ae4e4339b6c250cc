"""A team of workers over a stream and a store that all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.leases.lease_team import STREAM, Team

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis


@pytest.fixture
def new_team(local_kinesis: LocalKinesis, tmp_path: Path) -> Iterator[Callable[..., Team]]:
    """Make a team over so many shards, whose leases last for so many seconds."""
    teams: list[Team] = []

    def make(shards: int, failover_seconds: float, **options: str) -> Team:
        local_kinesis.create_stream(STREAM, shards)
        more = {f"kinesis.{key.replace('_', '.')}": value for key, value in options.items()}
        properties = {
            **local_kinesis.properties(STREAM),
            "kinesis.stream.initpos": "TRIM_HORIZON",
            "kinesis.checkpoint.application": "billing",
            "kinesis.checkpoint.sqlite.path": str(tmp_path / "leases.sqlite3"),
            "kinesis.lease.enabled": "true",
            "kinesis.lease.failovermillis": str(round(failover_seconds * 1000)),
            **more,
        }
        teams.append(Team(local_kinesis, properties, tmp_path))
        return teams[-1]

    yield make
    for team in teams:
        team.close()
