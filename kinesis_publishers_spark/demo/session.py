"""The Spark of the demo, which is quiet and leaves nothing behind, and the Java that it needs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any, Final

import psutil
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from kinesis_publishers_spark.data_source import register

_CORES: Final = "2"
_EXIT_SECONDS: Final = 15.0
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

    All its files go to ``directory``; ``spark.log`` there has what it says.
    """
    settings = {
        "spark.app.name": "kinesis-publishers demo",
        "spark.master": f"local[{_CORES}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={directory}",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": _CORES,
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.ui.enabled": "false",
    }
    conf = SparkConf().setAll(list(settings.items()))
    with ExitStack() as stack:
        on_interrupt = signal.getsignal(signal.SIGINT)
        # The JVM and the workers keep the standard error that they start with; PySpark itself warns
        # of versions that it does not know.
        with (directory / "spark.log").open("a") as log, redirect_stderr(log):
            gateway: Any = launch_gateway(conf, {"stderr": log})  # type: ignore[no-untyped-call]
            stack.callback(_end_jvm, gateway)
            context = SparkContext(conf=conf, gateway=gateway)
            # PySpark's handler of interrupts calls the JVM, out of the very call to the JVM that it
            # interrupts.
            signal.signal(signal.SIGINT, on_interrupt)
            spark = SparkSession(context)
            stack.callback(spark.stop)
        register(spark)
        yield spark


def _end_jvm(gateway: Any) -> None:
    # SparkContext.stop() leaves the JVM running until this process ends; it would remove and
    # create files after the temporary directory is gone.
    SparkContext._gateway = SparkContext._jvm = None
    process = gateway.proc
    workers = psutil.Process(process.pid).children(recursive=True)
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
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            worker.kill()
    # Not long: in a container whose first process does not reap, they stay as zombies.
    psutil.wait_procs(workers, timeout=2)


# What Spark 4 needs.
_MINIMUM_JAVA: Final = 17
_INSTALL: Final = (
    "Install one and run this again:\n"
    "  Debian, Ubuntu:  apt-get install openjdk-17-jre-headless\n"
    "  macOS:           brew install openjdk@17\n"
    "Spark takes the one that JAVA_HOME points to, else the first on the PATH."
)
_VERSION: Final = re.compile(r'version "((\d+)[^"]*)"')


def find_java_problem(environ: Mapping[str, str]) -> str | None:
    """Return what to tell the user if Spark cannot start with this environment, else ``None``."""
    home, path = environ.get("JAVA_HOME"), environ.get("PATH")
    # What Spark's launcher runs.
    java = os.path.join(home, "bin", "java") if home else shutil.which("java", path=path)
    if java is None:
        return f"Spark needs Java {_MINIMUM_JAVA} or later, and none was found.\n{_INSTALL}"
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        # macOS has a `java` that only says that there is none.
        return f"Spark needs Java {_MINIMUM_JAVA}, but {java} does not run: {error}\n{_INSTALL}"
    # Java 8 calls itself 1.8.0.
    version = _VERSION.search(answer.stderr + answer.stdout)
    if version is None or int(version[2]) < _MINIMUM_JAVA:
        found = "of an unknown version" if version is None else f"Java {version[1]}"
        return f"Spark needs Java {_MINIMUM_JAVA} or later; {java} is {found}.\n{_INSTALL}"
    return None
