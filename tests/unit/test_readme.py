"""The code in the README and the examples works as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import KernelManager

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
            env=environ or None,
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


def _environ(local_kinesis: LocalKinesis, tmp_path: Path) -> dict[str, str]:
    """Return where the blocks find endpoint and credentials: botocore's default chain."""
    return {
        **os.environ,
        "AWS_ENDPOINT_URL_KINESIS": local_kinesis.endpoint_url,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "XDG_STATE_HOME": str(tmp_path),
    }


def test_the_quick_start_is_two_commands() -> None:
    commands = re.findall(r"^```sh\n(.*?)^```", _README, re.DOTALL | re.MULTILINE)
    assert commands[:2] == ["pip install tox && tox -e demo\n", "pip install tox && tox\n"]


@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda path: path.name)
def test_every_example_compiles(path: Path) -> None:
    compile(path.read_text(encoding="utf-8"), str(path), "exec")


def test_the_block_without_spark_prints_what_is_in_the_stream(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    (block,) = [block for block in _BLOCKS if "import records" in block]
    local_kinesis.create_stream("orders")
    local_kinesis.put_many("orders", _RECORDS)
    with _running(tmp_path / "log", "-c", block, **_environ(local_kinesis, tmp_path)) as read_line:
        for key, data in _RECORDS:
            assert read_line() == f"shardId-000000000000 {key} {data!r}\n"


def test_the_block_without_spark_runs_in_a_notebook_until_it_is_interrupted(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    (block,) = [block for block in _BLOCKS if "import records" in block]
    local_kinesis.create_stream("orders")
    local_kinesis.put_many("orders", _RECORDS)
    kernel = KernelManager(kernel_name="python3")
    kernel.start_kernel(env=_environ(local_kinesis, tmp_path))
    client = kernel.blocking_client()
    printed = ""

    def note(message: dict[str, Any]) -> None:
        nonlocal printed
        text = message["content"].get("text", "")
        printed += text
        # Once: the message of the interruption is another one.
        if text and printed.count("\n") == len(_RECORDS):
            kernel.interrupt_kernel()

    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        reply = client.execute_interactive(block, output_hook=note, timeout=60)
        assert reply["content"]["ename"] == "KeyboardInterrupt", reply
    finally:
        client.stop_channels()
        child = kernel.provisioner.process
        kernel.shutdown_kernel(now=True)
        child.wait(timeout=30)
    assert printed == "".join(f"shardId-000000000000 {key} {data!r}\n" for key, data in _RECORDS)


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
