"""The code in the README and the examples works as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_ROOT = Path(__file__).parents[2]
_README = (_ROOT / "README.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"^```python\n(.*?)^```", _README, re.DOTALL | re.MULTILINE)
(_PROPERTIES,) = re.findall(r"^```properties\n(.*?)^```", _README, re.DOTALL | re.MULTILINE)
_FAN_OUT_OF_THE_README = dict(line.split("=") for line in _PROPERTIES.splitlines())
_EXAMPLES = sorted((_ROOT / "examples").glob("*.py"))
_RECORDS = [(f"key{number}", b"value%d" % number) for number in range(5)]


@contextmanager
def _running(log: Path, *arguments: str, **environ: str) -> Iterator[Callable[[], str]]:
    """Run Python while the context lasts and yield a function that reads a line it prints."""
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | environ,
        ) as process,
    ):
        assert process.stdout is not None
        lines = process.stdout

        def read_line() -> str:
            line = lines.readline()
            assert line, log.read_text()
            return line

        try:
            yield read_line
        finally:
            process.kill()


def test_the_quick_start_is_two_commands() -> None:
    commands = re.findall(r"^```sh\n(.*?)^```", _README, re.DOTALL | re.MULTILINE)
    assert commands[:2] == ["pip install tox && tox -e demo\n", "pip install tox && tox\n"]


@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda path: path.name)
def test_every_example_compiles(path: Path) -> None:
    compile(path.read_text(encoding="utf-8"), str(path), "exec")


def test_the_block_without_spark_prints_what_is_in_the_stream(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    (block,) = [block for block in _BLOCKS if "import read" in block]
    local_kinesis.create_stream("orders")
    local_kinesis.put_many("orders", _RECORDS)
    # It has neither endpoint nor credentials: they come from botocore's default chain.
    environ = {
        "AWS_ENDPOINT_URL_KINESIS": local_kinesis.endpoint_url,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "XDG_STATE_HOME": str(tmp_path),
    }
    with _running(tmp_path / "log", "-c", block, **environ) as read_line:
        for key, data in _RECORDS:
            assert read_line() == f"shardId-000000000000 {key} {data!r}\n"


@pytest.mark.parametrize(
    "publisher", [{}, _FAN_OUT_OF_THE_README], ids=["polling", "enhanced fan-out"]
)
def test_the_example_without_spark_prints_what_is_in_the_stream(
    local_kinesis: LocalKinesis, tmp_path: Path, publisher: dict[str, str]
) -> None:
    local_kinesis.create_stream("orders")
    local_kinesis.put_many("orders", _RECORDS)
    properties = local_kinesis.properties("orders") | {"kinesis.stream.initpos": "TRIM_HORIZON"}
    properties |= publisher
    file = tmp_path / "local.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    example = str(_ROOT / "examples" / "plain_python.py")
    with _running(tmp_path / "log", example, str(file)) as read_line:
        for key, data in _RECORDS:
            assert read_line() == f"orders/shardId-000000000000 {key}: {data!r}\n"
