"""The page about the command line: its commands run, their output is shown, nothing is missing."""

from __future__ import annotations

import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from kinesis_publishers.cli.main import COMMANDS_GROUP, main
from kinesis_publishers.cli.shared import connection
from tests.unit.cli.cli_support import ORDERS, run_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_TEXT = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
_SESSIONS = re.findall(r"^```console\n(.*?)^```", _TEXT, re.DOTALL | re.MULTILINE)
_SHELL = re.findall(r"^```sh\n(.*?)^```", _TEXT, re.DOTALL | re.MULTILINE)
_COMMANDS = [line for block in _SHELL for line in block.splitlines()]
_WRONG = "kinesis.stream=a\nkinesis.stream.initpos=NOW\n"
# What differs from run to run, and the width of tables.
_VARIES = (
    (r"\d{56}", "<sequence number>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+Z)?", "<time>"),
    (r":\d{10}\b", ":<created>"),
    (r"─+", "<rule>"),
    (r" {2,}", "  "),
)


def steady(text: str) -> list[str]:
    for pattern, replacement in _VARIES:
        text = re.sub(pattern, replacement, text)
    return [line.strip() for line in text.splitlines()]


def arguments(line: str) -> list[str]:
    """Return the arguments of the first command on a line of shell."""
    program, *words = shlex.split(re.split(r"[|<>&]", re.sub(r"'[^']*'", _without_shell, line))[0])
    assert program == "kinesis-publishers"
    return words


def _without_shell(quoted: re.Match[str]) -> str:
    return re.sub(r"[|<>&]", "", quoted[0])


def commands(group: click.Group = main, *names: str) -> Iterator[tuple[str, click.Command]]:
    """Yield our own commands; loading those of other packages takes long."""
    context = click.Context(group)
    for name in group.list_commands(context):
        if name in {point.name for point in entry_points(group=COMMANDS_GROUP)}:
            continue
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)
        else:
            yield " ".join((*names, name)), command


@pytest.fixture
def _directory(
    local_kinesis: LocalKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory with the files that the page speaks of."""
    local_kinesis.create_stream(ORDERS, 2)
    pairs = local_kinesis.properties(ORDERS) | {"kinesis.stream.initpos": "TRIM_HORIZON"}
    text = "".join(f"{key}={value}\n" for key, value in pairs.items())
    (tmp_path / "local.properties").write_text(text)
    (tmp_path / "wrong.properties").write_text(_WRONG)
    monkeypatch.chdir(tmp_path)
    here = {**connection.LOCAL, "aws.endpoint": local_kinesis.endpoint_url}
    monkeypatch.setattr(connection, "LOCAL", here)


@pytest.mark.usefixtures("_directory")
def test_each_session_prints_what_is_shown() -> None:
    assert len(_SESSIONS) >= 4
    for session in _SESSIONS:
        for step in session.removeprefix("$ ").split("\n$ "):
            line, _, shown = step.partition("\n")
            assert steady(run_command(*arguments(line)).output) == steady(shown), line


def understood(line: str, tmp_path: Path) -> bool:
    """Return whether the options of a command exist; nothing is run."""
    words = arguments(line)
    for name in (
        "my.properties",
        "old.properties",
        "local.properties",
        "b.jsonl",
        "image.png",
        "orders.parquet",
    ):
        (tmp_path / name).touch()
        words = [str(tmp_path / name) if word == name else word for word in words]
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command = found
    return bool(command.make_context(command.name, words).params)


@pytest.mark.parametrize("line", _COMMANDS)
def test_each_line_of_shell_is_understood(line: str, tmp_path: Path) -> None:
    assert understood(line, tmp_path)


_OURS = dict(commands())


def test_each_command_stands_in_the_table_at_the_beginning() -> None:
    table = _TEXT.split("\n## ")[0]
    for name in main.list_commands(click.Context(main)):
        assert re.search(rf"^\| .*`{name}\b", table, re.MULTILINE), name


@pytest.mark.parametrize("name", _OURS)
def test_each_command_and_each_option_is_mentioned(name: str) -> None:
    assert re.search(rf"`({name}|{name.split()[-1]})\b", _TEXT)
    options = [one for one in _OURS[name].params if isinstance(one, click.Option)]
    missing = [
        spelling
        for option in options
        for spelling in option.opts
        if not re.search(rf"(?<![\w-]){re.escape(spelling)}(?![\w-])", _TEXT)
    ]
    assert missing == []


@pytest.mark.parametrize("name", _OURS)
def test_the_help_of_each_command_has_examples_that_are_understood(
    name: str, tmp_path: Path
) -> None:
    lines = map(str.strip, (_OURS[name].help or "").splitlines())
    examples = [line for line in lines if line.startswith("kinesis-publishers ")]
    assert any(line.startswith(f"kinesis-publishers {name}") for line in examples)
    for example in examples:
        assert understood(example, tmp_path), example
