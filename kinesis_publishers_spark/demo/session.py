"""The Spark of the demo, which is quiet and leaves nothing behind, and the Java that it needs."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
from pyspark import SparkContext
from pyspark.sql import SparkSession

from kinesis_publishers_spark.data_source import register
from kinesis_publishers_spark.demo.server import handled_signals

_CORES: Final = 2
_EXIT_SECONDS: Final = 15.0
_SLICE_SECONDS: Final = 0.1
# Another Spark's home, configuration or arguments would take the place of the installed PySpark;
# Hadoop's could name another file system for the demo's files; and a profile that is not configured
# here fails every AWS client, also one that has its credentials.
_FOREIGN: Final = (
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS"),
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"),
)


def isolate_environment(environ: MutableMapping[str, str]) -> None:
    """Make Spark use this interpreter and nothing of another installation or account."""
    for name in _FOREIGN:
        environ.pop(name, None)
    # Without it Spark runs the `python3` of the PATH, and a query that cannot import its source
    # there may wait forever.
    environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    for name in ("no_proxy", "NO_PROXY"):
        environ[name] = ",".join(filter(None, [environ.get(name), "127.0.0.1"]))


@contextmanager
def open_session(directory: Path) -> Iterator[SparkSession]:
    """Start Spark, with the source registered, and end it and its JVM when the context ends.

    Args:
        directory: where all its files go; ``spark.log`` has what Spark says.
    """
    with ExitStack() as stack:
        stack.callback(_end_jvm)
        # The JVM and the workers keep the standard error that they start with. PySpark's handler of
        # interrupts calls the JVM, out of the very call to the JVM that it interrupts.
        with _redirected_stderr(directory / "spark.log"), handled_signals(signal.SIGINT):
            spark = _start(directory)
        stack.callback(spark.stop)
        # py4j writes a traceback to the root logger when a call is interrupted.
        logging.basicConfig(handlers=[logging.NullHandler()])
        register(spark)
        yield spark


def _start(directory: Path) -> SparkSession:
    return (
        SparkSession.builder.appName("kinesis-publishers demo")
        .master(f"local[{_CORES}]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={directory}")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.sql.shuffle.partitions", _CORES)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.numRecentProgressUpdates", 20)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def _end_jvm() -> None:
    # SparkSession.stop() leaves the JVM running until this process ends; it would remove and
    # create files after the temporary directory is gone.
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    process = gateway.proc
    workers = _processes_below(process.pid)
    with suppress(OSError):
        gateway.shutdown()
    # Spark's JVM ends when its standard input does.
    process.stdin.close()
    try:
        process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # Spark asks its Python processes to end, but does not wait for them.
    end_processes(workers, patience_seconds=_EXIT_SECONDS)


def end_processes(processes: list[psutil.Process], *, patience_seconds: float) -> None:
    """Wait for the end of ``processes``; kill those that have not ended in time."""
    left = _wait_for_end(processes, patience_seconds)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _wait_for_end(left, _EXIT_SECONDS)


def _wait_for_end(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    deadline = time.monotonic() + seconds
    while processes and time.monotonic() < deadline:
        _, present = psutil.wait_procs(processes, timeout=_SLICE_SECONDS)
        # In a container whose first process does not reap, ended processes stay as zombies.
        processes = [one for one in present if not _has_ended(one)]
    return processes


def _has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _processes_below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@contextmanager
def _redirected_stderr(path: Path) -> Iterator[None]:
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)


# What Spark 4 needs.
_MINIMUM_JAVA: Final = 17

_INSTALL = (
    "Install one and run this again:\n"
    "  Debian, Ubuntu:  apt-get install openjdk-17-jre-headless\n"
    "  macOS:           brew install openjdk@17\n"
    "Spark takes the one that JAVA_HOME points to, else the first on the PATH."
)
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_TIMEOUT_SECONDS = 30.0


def find_java_problem(environ: Mapping[str, str]) -> str | None:
    """Return what to tell the user if Spark cannot start with this environment, else ``None``."""
    java = _find_java(environ)
    if java is None:
        return f"Spark needs Java {_MINIMUM_JAVA} or later, and none was found.\n{_INSTALL}"
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        # macOS has a `java` that only says that there is none.
        return f"Spark needs Java {_MINIMUM_JAVA}, but {java} does not run: {error}\n{_INSTALL}"
    major = parse_major_version(answer.stderr + answer.stdout)
    if major is None or major < _MINIMUM_JAVA:
        found = "of an unknown version" if major is None else f"Java {major}"
        return f"Spark needs Java {_MINIMUM_JAVA} or later; {java} is {found}.\n{_INSTALL}"
    return None


def _find_java(environ: Mapping[str, str]) -> str | None:
    """Return the ``java`` that Spark's launcher would run."""
    home = environ.get("JAVA_HOME")
    if home:
        return os.path.join(home, "bin", "java")
    return shutil.which("java", path=environ.get("PATH"))


def parse_major_version(text: str) -> int | None:
    """Return the major version in what ``java -version`` printed; ``1.8.0`` is 8."""
    found = _VERSION.search(text)
    if found is None:
        return None
    first, second = int(found[1]), found[2]
    return int(second) if first == 1 and second is not None else first
