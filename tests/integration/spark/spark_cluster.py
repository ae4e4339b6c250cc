"""A standalone Spark cluster of two workers on the loopback interface, each with one executor.

The workers have different host names: Spark never runs a speculative copy of a task on the host
that runs the task itself.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from tests.integration.spark.processes import Program, command_line, descendants

if TYPE_CHECKING:
    import psutil

_SPARK_HOME = Path(pyspark.__file__).parent
_HOSTS = ("127.0.0.1", "localhost")
_DEADLINE_SECONDS = 120.0


class _Daemon(Program):
    """One process of the cluster, with its descendants, and what it says."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        options = f"{os.environ['SPARK_SUBMIT_OPTS']} -Dspark.master.rest.enabled=false"
        more = {
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_LOCAL_IP": _HOSTS[0],
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": options,
        }
        command = (str(_SPARK_HOME / "bin" / "spark-class"), *arguments)
        super().__init__(*command, cwd=folder, env=os.environ | more)

    def wait_for(self, pattern: str) -> str:
        """Wait for a line that matches; return its first group."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while True:
            for line in list(self.lines):
                if match := re.search(pattern, line):
                    return match[1]
            assert time.monotonic() < deadline, "".join(self.lines)
            time.sleep(0.05)


class SparkCluster:
    """A master and its workers; ``folder`` takes what they write."""

    def __init__(self, folder: Path) -> None:
        self._daemons: list[_Daemon] = []
        try:
            self._start(folder)
        except BaseException:
            self.stop()
            raise

    def _start(self, folder: Path) -> None:
        package = "org.apache.spark.deploy"
        port = ("--port", "0", "--webui-port", "0")
        master = _Daemon(f"{package}.master.Master", "--host", _HOSTS[0], *port, folder=folder)
        self._daemons.append(master)
        self.url = master.wait_for(r"Starting Spark master at (spark://\S+)")
        for host in _HOSTS:
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"on-{host}"))
            worker = (f"{package}.worker.Worker", "--host", host, *port, *size, self.url)
            self._daemons.append(_Daemon(*worker, folder=folder))

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the executors that are running."""
        return [
            process
            for daemon in self._daemons
            for process in descendants(daemon.pid)
            if "CoarseGrainedExecutorBackend" in command_line(process)
            and "java" in command_line(process).split(" ", 1)[0]
        ]

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.kill()
