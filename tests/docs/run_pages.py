"""Runs the Python of pages: ``python run_pages.py OUTCOMES.json PAGE...``.

It runs in a separate process with the environment of a reader, whose clients find a Kinesis by
default: a local server replaces AWS's. All pages share it, and one session of Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from kinesis_publishers.testing.local_kinesis import Behaviour, LocalKinesis
from tests.docs.doc_pages import Block, How, blocks_of, is_python, runs_alone, uses_spark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

# What `kinesis-publishers local` listens on, and pages therefore name.
_ENDPOINT_ON_PAGES = "http://127.0.0.1:4567"


def run_page(page: Path, server: LocalKinesis, spark: SparkSession | None) -> None:
    """Run the blocks of a page in their order; the first failure is raised.

    Hidden Python has ``server``, the session of Spark as ``spark``, and the path of its page as
    ``PAGE``.
    """
    given: dict[str, Any] = {"server": server, "PAGE": page}
    if spark is not None:
        given["spark"] = spark
    # A module, in which classes are found by their names.
    module = sys.modules["page"] = ModuleType("page")
    namespace = module.__dict__
    namespace.update(given)
    for block in filter(is_python, blocks_of(page)):
        if runs_alone(page):
            namespace.clear()
            namespace.update(given, __name__="page")
        code = block.code.replace(_ENDPOINT_ON_PAGES, server.endpoint_url)
        # Lines of a traceback are those of the page.
        program = compile("\n" * block.line + code, str(page), "exec")
        if block.how is How.RUN:
            exec(program, namespace)
        elif block.how is How.RUN_UNTIL_AWAITED:
            with _queries_ending_where_they_are_awaited():
                exec(program, namespace)
        elif block.how is How.RUN_UNTIL_PRINTED:
            _run_until_printed(block, code)


def _run_until_printed(block: Block, code: str) -> None:
    """Run a program until it prints the line that its page announces, then interrupt it."""
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        try:
            if not any(block.text in line for line in program.stdout):
                raise AssertionError(f"line {block.line}: it ended without printing {block.text!r}")
        finally:
            program.send_signal(signal.SIGINT)


@contextmanager
def _queries_ending_where_they_are_awaited() -> Iterator[None]:
    """Let ``awaitTermination()`` stop a query; on the page it waits for an external stop."""
    from pyspark.sql.streaming import StreamingQuery

    def stop(query: StreamingQuery, timeout: float | None = None) -> None:
        query.processAllAvailable()
        query.stop()

    with patch.object(StreamingQuery, "awaitTermination", stop):
        yield


def open_spark() -> SparkSession:
    """Return the session that pages get with ``SparkSession.builder.getOrCreate()``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from kinesis_publishers_spark import register

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def run_pages(pages: Sequence[Path]) -> dict[str, str | None]:
    """Return for each page None, or what went wrong."""
    outcomes: dict[str, str | None] = {}
    with ExitStack() as resources:
        server = resources.enter_context(LocalKinesis.in_thread())
        os.environ |= {
            "AWS_ENDPOINT_URL_KINESIS": server.endpoint_url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
        }
        # Before Spark starts: its JVM keeps the directory in which it was started.
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory()))
        os.chdir(directory)
        # Checkpoints of a page are gone with its stream, as everything that it has written.
        os.environ["XDG_STATE_HOME"] = str(directory)
        spark = open_spark() if any(map(uses_spark, pages)) else None
        for page in pages:
            server.reset()
            server.behaviour = Behaviour()
            try:
                run_page(page, server, spark)
                outcomes[str(page)] = None
            except Exception:  # noqa: BLE001 - reported, and the next page has its turn
                outcomes[str(page)] = traceback.format_exc()
            for query in spark.streams.active if spark else ():
                query.stop()
            _empty(directory)
        if spark:
            spark.stop()
    return outcomes


if __name__ == "__main__":
    results = run_pages([Path(argument) for argument in sys.argv[2:]])
    Path(sys.argv[1]).write_text(json.dumps(results), encoding="utf-8")
