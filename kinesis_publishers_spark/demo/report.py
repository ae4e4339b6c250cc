"""What the demo shows: a bar on a terminal, plain lines elsewhere, and the result."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self

from attrs import frozen
from rich import box
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from kinesis_publishers_spark.demo.flights import CarrierDelays, Comparison

# Spark reads in micro-batches: over a shorter time the rate would jump.
_WINDOW_SECONDS: Final = 10.0


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
    """Writes to a console; on a terminal the context has a bar, which is gone at its end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        # When so many records were read: what the rate of now is made of.
        self._recent: deque[tuple[float, int]] = deque()
        self._tenths = -1
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("reading the flights", total=None, note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Write one line of any length."""
        self._console.print(escape(text), soft_wrap=True, highlight=False)

    def begin(self, phase: str) -> None:
        """Show what is done now; how long it takes is unknown."""
        self._bar.update(self._task, description=phase, total=None, note="", refresh=True)

    def show_progress(self, figures: ReadFigures) -> None:
        """Show how far reading is: at once on a terminal, elsewhere first and with each tenth."""
        self._recent.append((figures.elapsed_seconds, figures.read))
        while self._recent[0][0] < figures.elapsed_seconds - _WINDOW_SECONDS:
            self._recent.popleft()
        since, before = self._recent[0]
        rate = (figures.read - before) / max(1.0, figures.elapsed_seconds - since)
        lag = "unknown" if figures.lag_seconds is None else f"{figures.lag_seconds:.1f} s"
        note = f"put {figures.put:,}, read {figures.read:,} of {figures.total:,}"
        note = f"{note}, {rate:,.0f} records/s, lag {lag}"
        self._bar.update(
            self._task,
            description="sending" if figures.put < figures.total else "reading",
            total=figures.total,
            completed=figures.read,
            note=note,
            refresh=True,
        )
        tenths = 10 * figures.read // figures.total
        if tenths > self._tenths and not self._console.is_terminal:
            self.say(f"{figures.elapsed_seconds:5.1f} s: {note}")
        self._tenths = tenths

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
            self.say("A job of your own: kinesis-publishers init my-job --kind spark")
        else:
            self.say("FAILED: what was read is not what was put.")
