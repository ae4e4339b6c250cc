"""Runs queries on a cluster by way of the driver program, and meets their tasks in the middle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from tests.integration.spark.cluster_driver import Command
from tests.integration.spark.processes import descendants, wait_until_gone

if TYPE_CHECKING:
    from tests.integration.spark.cluster_driver import Rows
    from tests.integration.spark.spark_cluster import SparkCluster

_DRIVER = Path(__file__).with_name("cluster_driver.py")
_DEADLINE_SECONDS = 300.0


class ClusterDriver:
    """The driver program, connected to a cluster; it runs one query after the other."""

    def __init__(self, cluster: SparkCluster, folder: Path) -> None:
        self.cluster = cluster
        self._process = subprocess.Popen(
            [sys.executable, str(_DRIVER), cluster.url, str(folder / "warehouse")],
            cwd=folder,
            env={
                **os.environ,
                "SPARK_LOCAL_IP": "127.0.0.1",
                # A loaded machine takes its time to accept a connection.
                "SPARK_AUTH_SOCKET_TIMEOUT": "120",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said: list[str] = []
        self._drain = threading.Thread(target=self._read_errors, daemon=True)
        self._drain.start()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            self._said.extend(stream)

    @property
    def said(self) -> str:
        return "".join(self._said[-200:])

    def start(self, command: Command) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command.to_line() + "\n")
        self._process.stdin.flush()

    def wait_for(self, path: Path, answer: Path) -> None:
        """Wait for a file that the driver or one of its tasks writes before the answer."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not path.exists():
            assert self._process.poll() is None, self.said
            assert path == answer or not answer.exists(), answer.read_text() + self.said
            assert time.monotonic() < deadline, f"no {path.name}\n{self.said}"
            time.sleep(0.02)

    def stop(self) -> None:
        family = descendants(self._process.pid)
        for process in family:
            with suppress(ProcessLookupError):
                os.kill(process.pid, 9)
        self._process.kill()
        self._process.wait()
        wait_until_gone(family)
        self._drain.join()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


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
