"""The group: which commands there are, and what it says about one that cannot be loaded."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, version

import click
import pytest
from click.testing import CliRunner

from kinesis_publishers.cli.main import COMMANDS_GROUP, main
from kinesis_publishers.model.native import find_native
from tests.unit.cli.cli_support import run_without


@click.command(hidden=True)
def internal() -> None:
    """Serve the package that announces it."""


def test_the_version_is_that_of_the_distribution() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.output == (
        f"kinesis-publishers, version {version('kinesis-publishers')}\n"
        f"Records are decoded in {find_native()[1]}.\n"
    )


def test_the_help_lists_own_and_announced_commands() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "\n  demo " in result.output
    assert "\n  local " in result.output


def test_the_help_leaves_out_a_hidden_command(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("internal", f"{__name__}:internal", COMMANDS_GROUP)]
    monkeypatch.setattr("kinesis_publishers.cli.main.entry_points", lambda **_: points)
    assert "internal" not in CliRunner().invoke(main, ["--help"]).output
    assert CliRunner().invoke(main, ["internal"]).exit_code == 0


@pytest.mark.parametrize("name", ["config", "consumers", "local", "put", "shards", "tail"])
def test_the_help_lists_a_command_with_the_first_line_of_its_own_help(name: str) -> None:
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None
    formatter = click.HelpFormatter(width=200)
    main.format_commands(context, formatter)
    assert f" {command.get_short_help_str(200)}\n" in formatter.getvalue()


def test_the_demo_without_pyspark_says_what_to_install() -> None:
    ended = run_without("pyspark", "demo", "--flights", "10")
    assert ended.returncode == 1
    assert "'demo' needs 'pyspark'" in ended.stderr
    assert "pip install 'kinesis-publishers[demo]'" in ended.stderr


def test_the_help_without_pyspark_marks_the_demo() -> None:
    ended = run_without("kinesis_publishers_spark", "--help")
    assert ended.returncode == 0
    assert "not available: kinesis_publishers_spark is not installed" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "No such command 'nothing'.\n"),
        (["tial"], "No such command 'tial'; did you mean 'tail'?\n"),
        (["leases", "lst"], "No such command 'lst'; did you mean 'list'?\n"),
    ],
    ids=" ".join,
)
def test_an_unknown_command_is_an_error(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_the_command_line_does_not_import_spark() -> None:
    code = (
        "import sys; from click.testing import CliRunner; "
        "from kinesis_publishers.cli.main import main; "
        "assert 'Read real data' in CliRunner().invoke(main, ['--help']).output; "
        "print({'pyspark', 'kinesis_publishers_spark.data_source'} & sys.modules.keys())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "set()"
