"""Processors of the KCL's own clients, unchanged, with the lease table of the KCL."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.cli.daemon_process import DaemonProcess
from tests.integration.cli.daemon_support import STREAM

if TYPE_CHECKING:
    from tests.integration.cli.daemon_support import Daemon

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("moto_url")]

_NODE = Path(__file__).with_name("node")


def fetched(*command: str, cwd: Path) -> None:
    """Run what fetches a package; without its registry the test is skipped, and fails in CI."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode and "CI" not in os.environ:
        pytest.skip(f"{command[0]} cannot fetch it: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def kcl_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of amazon_kclpy: installing it would fetch the daemon for Java."""
    folder = tmp_path_factory.mktemp("kclpy")
    what = ("--no-deps", "--no-binary", ":all:", "amazon_kclpy==3.2.0")
    fetched(sys.executable, "-m", "pip", "download", *what, cwd=folder)
    (archive,) = folder.glob("amazon_kclpy-*.tar.gz")
    shutil.unpack_archive(archive, folder, filter="data")
    return folder / "amazon_kclpy-3.2.0"


@pytest.fixture(scope="module")
def node_processor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("npm"):
        pytest.skip("needs Node.js and npm")
    folder = tmp_path_factory.mktemp("node") / "processor"
    shutil.copytree(_NODE, folder)
    fetched("npm", "install", "--no-audit", "--no-fund", cwd=folder)
    return folder / "processor.js"


def properties(daemon: Daemon, dynamodb_url: str, command: str) -> dict[str, str]:
    values = dict(daemon.pairs(kinesis_checkpoint_store="dynamodb"))
    table = f"multilang-{daemon.folder.name}"
    return values | {
        "executableName": command,
        "applicationName": table,
        "dynamoDBEndpoint": dynamodb_url,
    }


def test_the_sample_of_kcl_python(
    daemon: Daemon, dynamodb_url: str, kcl_python: Path, tmp_path: Path
) -> None:
    """It checkpoints at its first records, at the end of a shard, and when it has to stop."""
    sample = kcl_python / "samples" / "sample_kclpy_app.py"
    given = properties(daemon, dynamodb_url, f"{sys.executable} {sample}")
    # The sample writes no ends of lines, for which Python would wait.
    environment = {
        "PYTHONPATH": f"{kcl_python}:{Path(__file__).parents[3]}",
        "PYTHONUNBUFFERED": "1",
    }
    daemon.put(2)
    with DaemonProcess.running(tmp_path / "app.properties", given, environment) as process:
        process.wait_for("Data Size: 1", 2)
        daemon.put(3)
        process.wait_for("Data Size: 1", 5)
        daemon.server.reshard(STREAM, 2)
        process.wait_for("Shard has ended checkpointing")
        daemon.put(4)
        process.wait_for("Data Size: 1", 9)
        assert process.stop() == 0
        process.wait_for("Shutdown has been requested, checkpointing.")
    daemon.put(1)
    with DaemonProcess.running(tmp_path / "app.properties", given, environment) as process:
        said = process.wait_for("Data Size: 1")
        assert process.stop() == 0
    assert said.count("Data Size") == 1


def test_a_processor_of_kcl_node(
    daemon: Daemon, dynamodb_url: str, node_processor: Path, tmp_path: Path
) -> None:
    given = properties(daemon, dynamodb_url, f"node {node_processor}")
    daemon.put(2)
    with DaemonProcess.running(tmp_path / "app.properties", given) as process:
        said = process.wait_for("checkpoint null", 2)
        assert said.split("\n")[-6:-1] == [
            "begin shardId-000000000000 TRIM_HORIZON",
            "record 0",
            "checkpoint null",
            "record 1",
            "checkpoint null",
        ]
        daemon.server.reshard(STREAM, 2)
        process.wait_for("end null")
        daemon.put(1)
        process.wait_for("checkpoint null", 3)
        assert process.stop() == 0
        process.wait_for("leaseLost", 2)
    daemon.put(1)
    with DaemonProcess.running(tmp_path / "app.properties", given) as process:
        said = process.wait_for("checkpoint null")
        assert process.stop() == 0
    assert [line for line in said.split("\n") if line.startswith("record")] == ["record 3"]
