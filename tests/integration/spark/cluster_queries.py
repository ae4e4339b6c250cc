"""Runs queries on a cluster by way of the driver program, and meets their tasks in the middle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from tests.integration.spark.cluster_driver import Command
from tests.integration.spark.processes import Program

if TYPE_CHECKING:
    from tests.integration.spark.cluster_driver import Rows
    from tests.integration.spark.spark_cluster import SparkCluster

_DRIVER = Path(__file__).with_name("cluster_driver.py")
_DEADLINE_SECONDS = 300.0


class ClusterDriver(Program):
    """The driver program, connected to a cluster; it runs one query after the other."""

    def __init__(self, cluster: SparkCluster, folder: Path) -> None:
        self.cluster = cluster
        # A loaded machine takes its time to accept a connection.
        more = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_AUTH_SOCKET_TIMEOUT": "120"}
        super().__init__(
            *(sys.executable, str(_DRIVER), cluster.url, str(folder / "warehouse")),
            cwd=folder,
            env=os.environ | more,
            stdin=subprocess.PIPE,
        )

    def start(self, command: Command) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command.to_line() + "\n")
        self.process.stdin.flush()

    def wait_for(self, path: Path, answer: Path) -> None:
        """Wait for a file that the driver or one of its tasks writes before the answer."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not path.exists():
            assert self.process.poll() is None, self.said
            assert path == answer or not answer.exists(), answer.read_text() + self.said
            assert time.monotonic() < deadline, f"no {path.name}\n{self.said}"
            time.sleep(0.02)


@define
class ClusterQuery:
    """One query on the cluster, whose files are below ``folder``."""

    driver: ClusterDriver
    folder: Path
    _answer: Path = field(init=False)
    signals: Path = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._answer = self.folder / "answer.json"
        self.signals = self.folder / "signals"
        self.signals.mkdir()

    def start(self, properties: dict[str, str], *, sink: str, rows: int) -> None:
        """Start a query that ends once it has ``rows`` rows."""
        self.driver.start(
            Command(
                properties=properties,
                checkpoint=str(self.folder / "checkpoint"),
                signals=str(self.signals),
                answer=str(self._answer),
                sink=sink,
                rows=rows,
            )
        )

    def wait_for(self, signal: str) -> str:
        """Wait until a task, or the sink, has given a signal; return what it says."""
        self.driver.wait_for(self.signals / signal, self._answer)
        return (self.signals / signal).read_text()

    def give(self, signal: str) -> None:
        (self.signals / signal).touch()

    @property
    def attempts(self) -> set[int]:
        """The numbers of the attempts of the tasks that note them."""
        return {int(path.name.rpartition("-")[2]) for path in self.signals.glob("attempt-*")}

    def actions(self) -> list[list[Rows]]:
        """Wait for the end; return the rows of each action of each micro-batch."""
        self.driver.wait_for(self._answer, self._answer)
        result = json.loads(self._answer.read_text())
        assert "actions" in result, f"{result}\n{self.driver.said}"
        return [rows for _, rows in sorted(result["actions"].items(), key=lambda one: int(one[0]))]
