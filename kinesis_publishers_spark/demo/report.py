"""What the demo shows: a bar on a terminal, plain lines elsewhere, and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from rich import box
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from kinesis_publishers_spark.demo.flights import CarrierDelays


class Report:
    """Writes to a console; on a terminal the context has a bar, which is gone at its end."""

    def __init__(self, console: Console) -> None:
        self._console = console
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
        """Show a phase whose duration is unknown."""
        self._bar.update(self._task, description=phase, total=None, note="", refresh=True)

    def show_progress(self, *, total: int, put: int, read: int, elapsed_seconds: float) -> None:
        """Show how far reading is: at once on a terminal, elsewhere first and with each tenth.

        Kinesis has accepted ``put`` of the ``total`` records, and Spark has processed ``read``,
        ``elapsed_seconds`` after the first was put.
        """
        rate = read / max(1.0, elapsed_seconds)
        note = f"put {put:,}, read {read:,} of {total:,}, {rate:,.0f} records/s"
        phase = "sending" if put < total else "reading"
        self._bar.update(
            self._task, description=phase, total=total, completed=read, note=note, refresh=True
        )
        tenths = 10 * read // total
        if tenths > self._tenths and not self._console.is_terminal:
            self.say(f"{elapsed_seconds:5.1f} s: {note}")
        self._tenths = tenths

    def show_delays(self, delays: Mapping[str, CarrierDelays], airlines: Mapping[str, str]) -> None:
        """Show the mean departure delay of each carrier, the longest first."""
        title = "Mean departure delay by carrier, computed by Spark"
        table = Table("Carrier", "Name", title=title, box=box.SIMPLE)
        for heading in ("Flights", "Departed", "Mean (min)"):
            table.add_column(heading, justify="right")
        ordered = sorted(delays.items(), key=lambda item: -(item[1].mean_minutes or 0.0))
        for carrier, one in ordered:
            table.add_row(
                carrier,
                escape(airlines.get(carrier, "?")),
                f"{one.flights:,}",
                f"{one.departed:,}",
                "-" if one.mean_minutes is None else f"{one.mean_minutes:.2f}",
            )
        self._console.print(table)

    def show_comparison(
        self, expected: int, faults: Mapping[str, int], wrong_carriers: Sequence[str]
    ) -> None:
        """Print the result of the comparison with the CSV."""
        received = expected - faults["missing"] + faults["repeated"] + faults["unknown"]
        counts = ", ".join(f"{fault} {count:,}" for fault, count in faults.items())
        self.say(
            f"Compared all {received:,} records read with the {expected:,} of the CSV: {counts}."
        )
        for line in wrong_carriers:
            self.say(f"Wrong figures for {line}.")
        if any(faults.values()) or wrong_carriers:
            self.say("FAILED: what was read is not what was put.")
        else:
            self.say("OK: every record exactly once and unchanged; all counts and sums agree.")
            self.say("A job of your own: kinesis-publishers init my-job --kind spark")
