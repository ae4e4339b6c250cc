"""The code on the pages of the documentation works as printed; see ``doc_pages``."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import javaproperties
import pytest

from kinesis_publishers import Properties
from kinesis_publishers.cli.main import main
from tests.docs.doc_pages import (
    PAGES,
    Block,
    How,
    blocks_of,
    is_python,
    name_of,
    runner_of,
    uses_spark,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_RUNNER = Path(__file__).with_name("run_pages.py")
_WITH_PYTHON = [page for page in PAGES if any(map(is_python, blocks_of(page)))]
_HERE = [page for page in _WITH_PYTHON if runner_of(page) is None]
_PLAIN = [page for page in _HERE if not uses_spark(page)]
_SPARK = [page for page in _HERE if uses_spark(page)]
# Spark gives a worker ten seconds to start, which no option changes: too few on a busy machine.
_WAS_BUSY = "Python worker failed to connect back"
# An illustration is untested code: raise this number only with a good reason.
_MOST_ILLUSTRATIONS = 0


def blocks_in(language: str) -> list[object]:
    """Return the blocks of a language on all pages, as parameters."""
    return [
        pytest.param(block, id=f"{name_of(page)}:{block.line}")
        for page in PAGES
        for block in blocks_of(page)
        if block.language == language
    ]


def outcomes_of(pages: Sequence[Path], directory: Path, *, seconds: float) -> dict[str, str | None]:
    """Run pages in one process and return what went wrong on each."""
    outcomes, log = directory / "outcomes.json", directory / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(_RUNNER), str(outcomes), *map(str, pages)],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            # With the JVM, and the programs of pages.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert outcomes.exists(), log.read_text()
    found: dict[str, str | None] = json.loads(outcomes.read_text())
    return found


@pytest.fixture(scope="session")
def plain_outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return outcomes_of(_PLAIN, tmp_path_factory.mktemp("pages"), seconds=100)


@pytest.fixture(scope="session")
def spark_outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    found: dict[str, str | None] = {str(page): _WAS_BUSY for page in _SPARK}
    for _ in range(3):
        if pages := [page for page in _SPARK if _WAS_BUSY in (found[str(page)] or "")]:
            found |= outcomes_of(pages, tmp_path_factory.mktemp("spark-pages"), seconds=600)
    return found


@pytest.mark.xdist_group("pages")
@pytest.mark.parametrize("page", _PLAIN, ids=name_of)
def test_the_python_of_a_page_runs(page: Path, plain_outcomes: dict[str, str | None]) -> None:
    assert plain_outcomes[str(page)] is None, plain_outcomes[str(page)]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(1300)
@pytest.mark.parametrize("page", _SPARK, ids=name_of)
def test_the_python_of_a_page_about_spark_runs(
    page: Path, spark_outcomes: dict[str, str | None]
) -> None:
    assert spark_outcomes[str(page)] is None, spark_outcomes[str(page)]


def test_a_page_that_another_test_runs_has_that_test() -> None:
    elsewhere = {name_of(one): runner_of(one) for one in _WITH_PYTHON if one not in _HERE}
    assert list(elsewhere) == ["docs/cookbook-tables.md", "docs/spark-pipelines.md"]
    assert all(test is not None and test.is_file() for test in elsewhere.values())


def test_hardly_any_block_is_an_illustration() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page) if block.how is How.COMPILE]
    assert len(blocks) <= _MOST_ILLUSTRATIONS
    assert all(block.text for block in blocks), "each has its reason"


@pytest.mark.parametrize("block", blocks_in("properties"))
def test_properties_on_a_page_are_accepted(block: Block) -> None:
    pairs = javaproperties.loads(block.code)
    # A fragment shows single keys: required ones may be missing.
    assert Properties.parse(pairs, complete="kinesis.streams" in pairs)


@pytest.mark.parametrize("block", blocks_in("json"))
def test_json_on_a_page_is_json(block: Block) -> None:
    assert json.loads(block.code)


@pytest.mark.parametrize("block", blocks_in("sh"))
def test_the_commands_on_a_page_exist_with_their_options(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in re.sub(r"\\\n", " ", block.code).splitlines():
        words = list(takewhile(_is_no_redirection, shlex.split(line, comments=True)))
        for word in words:
            if _FILE.fullmatch(word):
                (tmp_path / word).touch()
        if words and words[0] == "kinesis-publishers":
            parse_command(main, words)


# Options take files that must be there.
_FILE = re.compile(r"[\w-]+\.[a-z]+")


def _is_no_redirection(word: str) -> bool:
    return word not in {"|", "&", "&&", "<", ">", ">>", "2>"}


def parse_command(command: click.Command, words: list[str]) -> None:
    """Let click check the words of a command line, without running anything."""
    if isinstance(command, click.Group):
        assert len(words) > 1, f"{words[0]}: a command is missing"
        inner = command.get_command(click.Context(command), words[1])
        assert inner is not None, f"{words[0]} has no command {words[1]}"
        parse_command(inner, words[1:])
    else:
        command.make_context(words[0], words[1:], help_option_names=[]).close()
