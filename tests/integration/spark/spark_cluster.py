"""A standalone Spark cluster of two workers on the loopback interface, each with one executor.

The workers have different host names: Spark never runs a speculative copy of a task on the host
that runs the task itself.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from tests.integration.spark.processes import command_line, descendants, wait_until_gone

if TYPE_CHECKING:
    import psutil

_SPARK_HOME = Path(pyspark.__file__).parent
_HOSTS = ("127.0.0.1", "localhost")
_DEADLINE_SECONDS = 120.0


class _Daemon:
    """One process of the cluster, with its descendants, and what it says."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_LOCAL_IP": _HOSTS[0],
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(
                (os.environ["SPARK_SUBMIT_OPTS"], "-Dspark.master.rest.enabled=false")
            ),
        }
        self._process = subprocess.Popen(
            [str(_SPARK_HOME / "bin" / "spark-class"), *arguments],
            cwd=folder,
            env=environment,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: list[str] = []
        self._drain = threading.Thread(target=self._read_lines, daemon=True)
        self._drain.start()

    def _read_lines(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            self._lines.extend(stream)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, pattern: str) -> str:
        """Wait for a line that matches; return its first group."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while True:
            for line in list(self._lines):
                if match := re.search(pattern, line):
                    return match[1]
            assert time.monotonic() < deadline, "".join(self._lines)
            time.sleep(0.05)

    def kill(self) -> None:
        family = descendants(self._process.pid)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for process in family:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self._process.wait()
        wait_until_gone(family)
        self._drain.join()


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
