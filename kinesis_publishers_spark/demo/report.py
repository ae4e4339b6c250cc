"""What the demo shows: bars on a terminal, plain lines elsewhere, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self

from attrs import frozen
from rich import box
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from kinesis_publishers import Clock
    from kinesis_publishers_spark.demo.flights import CarrierDelays, Comparison

_LINE_INTERVAL_SECONDS: Final = 3.0


@frozen(kw_only=True)
class ReadFigures:
    """How far putting and reading are at one moment.

    Attributes:
        total: how many records there are to put and to read.
        put: how many Kinesis has accepted.
        read: how many Spark has processed.
        elapsed_seconds: since the first record was put.
        lag_seconds: the age of the oldest record that Spark has not processed, at most; ``None``
            before it is known.
    """

    total: int
    put: int = 0
    read: int = 0
    elapsed_seconds: float = 0.0
    lag_seconds: float | None = None

    @property
    def is_complete(self) -> bool:
        return self.read >= self.total

    @property
    def records_per_second(self) -> float:
        return self.read / self.elapsed_seconds if self.elapsed_seconds else 0.0


class Report:
    """Writes to a console; the context shows the bars while it lasts.

    Progress is shown within the context, everything else at any time.

    Args:
        clock: says when the next plain line is due.
    """

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._next_line = 0.0
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars.start()
            self._put = self._bars.add_task("put ", note="")
            self._read = self._bars.add_task("read", note="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bars.stop()

    def say(self, text: str) -> None:
        """Write one line of any length."""
        self._console.print(escape(text), soft_wrap=True, highlight=False)

    def show_progress(self, figures: ReadFigures) -> None:
        """Show how far it is: at once on a terminal, every few seconds elsewhere."""
        lag = "unknown" if figures.lag_seconds is None else f"{figures.lag_seconds:.1f} s"
        note = f"{figures.records_per_second:,.0f} records/s, lag {lag}"
        if self._console.is_terminal:
            self._bars.update(self._put, total=figures.total, completed=figures.put)
            self._bars.update(self._read, total=figures.total, completed=figures.read, note=note)
        elif self._clock.monotonic() >= self._next_line:
            self._next_line = self._clock.monotonic() + _LINE_INTERVAL_SECONDS
            self.say(
                f"{figures.elapsed_seconds:5.1f} s: put {figures.put:,}, "
                f"read {figures.read:,} of {figures.total:,}, {note}"
            )

    def show_delays(self, delays: Mapping[str, CarrierDelays], airlines: Mapping[str, str]) -> None:
        """Show the mean departure delay of each carrier, the longest first."""
        table = Table(title="Mean departure delay by carrier, computed by Spark", box=box.SIMPLE)
        table.add_column("Carrier")
        table.add_column("Name")
        for heading in ("Flights", "Departed", "Mean (min)"):
            table.add_column(heading, justify="right")
        ordered = sorted(delays.items(), key=lambda item: -(item[1].mean_delay_minutes or 0.0))
        for carrier, one in ordered:
            mean = one.mean_delay_minutes
            table.add_row(
                carrier,
                escape(airlines.get(carrier, "?")),
                f"{one.flights:,}",
                f"{one.departed:,}",
                "-" if mean is None else f"{mean:.2f}",
            )
        self._console.print(table)

    def show_comparison(self, comparison: Comparison, wrong_carriers: list[str]) -> None:
        """Say what the comparison with the CSV found."""
        self.say(
            f"Compared all {comparison.received:,} records read with the {comparison.expected:,} "
            f"of the CSV: missing {comparison.missing:,}, repeated {comparison.repeated:,}, "
            f"different {comparison.different:,}, unknown {comparison.unknown:,}."
        )
        for line in wrong_carriers:
            self.say(f"Wrong figures for {line}.")
        if comparison.is_exact and not wrong_carriers:
            self.say("OK: every record exactly once and unchanged; all counts and sums agree.")
        else:
            self.say("FAILED: what was read is not what was put.")
