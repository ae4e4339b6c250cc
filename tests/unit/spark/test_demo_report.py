"""What is shown, and that it can be read where there is no terminal."""

from __future__ import annotations

import io
import re
import unicodedata
from typing import Any

import click
import pytest
from rich.console import Console

from kinesis_publishers.cli.main import main
from kinesis_publishers_spark.demo.flights import CarrierDelays
from kinesis_publishers_spark.demo.report import Report

_EXACT = {"missing": 0, "repeated": 0, "different": 0, "unknown": 0}
_FIGURES: dict[str, Any] = {"total": 100, "put": 60, "read": 50, "elapsed_seconds": 10.0}


def _plain_console(width: int) -> Console:
    # FORCE_COLOR, which many CI systems set, would make a terminal of it.
    return Console(file=io.StringIO(), width=width, force_terminal=False)


def test_without_a_terminal_the_beginning_and_each_tenth_have_a_line() -> None:
    console = _plain_console(200)
    with Report(console) as report:
        for seconds, read in ((1, 0), (2, 0), (4, 5), (8, 12), (9, 19), (12, 50), (13, 50)):
            report.show_progress(**_FIGURES | {"elapsed_seconds": seconds, "read": read})
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "  1.0 s: put 60, read 0 of 100, 0 records/s",
        "  8.0 s: put 60, read 12 of 100, 2 records/s",
        " 12.0 s: put 60, read 50 of 100, 4 records/s",
    ]


def test_without_a_terminal_there_are_no_control_characters() -> None:
    console = _plain_console(80)
    with Report(console) as report:
        report.begin("starting Spark")
        report.show_progress(**_FIGURES)
        report.show_delays(
            {"UA": CarrierDelays(flights=3, departed=2, delay_minutes=3), "XX": CarrierDelays()},
            {"UA": "United Air Lines Inc."},
        )
        report.show_comparison(9, _EXACT, [])
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "United Air Lines Inc." in text
    assert "1.50" in text
    assert "starting" not in text
    assert not [c for c in text if unicodedata.category(c) == "Cc" and c != "\n"]


def test_on_a_terminal_there_is_one_bar_for_all_phases() -> None:
    file = io.StringIO()
    with Report(Console(file=file, width=120, force_terminal=True, color_system=None)) as report:
        report.begin("starting Spark")
        report.say("a line above it")
        report.show_progress(**_FIGURES)
        report.say("another one")
        report.show_progress(**_FIGURES | {"put": 100})
        report.begin("comparing")
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    lines = re.split(r"[\r\n]+", shown)
    assert lines[0].startswith("reading the flights")
    assert "a line above it" in lines
    phases = ("starting Spark", "sending", "reading ━", "comparing")
    found = [next(i for i, one in enumerate(lines) if one.startswith(phase)) for phase in phases]
    assert found == sorted(found)
    assert "read 50 of 100, 5 records/s" in lines[found[1]]


def test_an_exact_result_says_how_to_go_on() -> None:
    console = _plain_console(200)
    Report(console).show_comparison(9, _EXACT, [])
    *_, last = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    _, _, command = last.partition("kinesis-publishers ")
    name, *arguments = command.split()
    found = main.get_command(click.Context(main), name)
    assert found is not None
    assert found.make_context(name, arguments).params["kind"] == "spark"


@pytest.mark.parametrize(
    ("faults", "wrong_carriers", "said"),
    [
        ({}, [], "OK: every record exactly once and unchanged"),
        ({"missing": 1}, [], "all 8 records read with the 9 of the CSV: missing 1,"),
        ({"repeated": 2}, [], "all 11 records read with the 9 of the CSV: missing 0, repeated 2,"),
        ({"different": 3}, [], "all 9 records read with the 9 of the CSV: missing 0, repeated 0, "),
        ({"different": 3}, [], "different 3, unknown 0."),
        ({"unknown": 4}, [], "all 13 records read with the 9 of the CSV"),
        ({}, ["UA: expected 1, computed 2"], "Wrong figures for UA"),
    ],
)
def test_the_verdict_follows_the_comparison(
    faults: dict[str, int], wrong_carriers: list[str], said: str
) -> None:
    console = _plain_console(200)
    Report(console).show_comparison(9, _EXACT | faults, wrong_carriers)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert said in text
    assert ("FAILED" in text) is bool(faults or wrong_carriers)
