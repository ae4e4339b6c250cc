"""What Maven builds or fetches, once, for all runs; and AWS's DynamoDB Local."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import tempfile
import time
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.jvm import SHORT_LIVED
from tests.servers import free_port, program

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVER = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
_START_SECONDS = 60.0
DYNAMODBS: Final = [
    pytest.param("dynamodb_url", marks=pytest.mark.xdist_group("moto_url")),
    pytest.param(
        "dynamodb_local", marks=[pytest.mark.long, pytest.mark.xdist_group("dynamodb_local")]
    ),
]
"""The fixtures of DynamoDB, as parameters of a test."""


def built(project: Path, name: str) -> Path:
    """Return the directory of what a project makes, and of all that it needs.

    It takes a minute and Maven Central the first time, and is kept in the user's cache folder.
    """
    maven = program("mvn")
    sources = sorted(path for path in project.rglob("*") if path.suffix in {".java", ".xml"})
    digest = sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    made = cache / "kinesis-publishers" / f"{name}-{digest}"
    made.parent.mkdir(parents=True, exist_ok=True)
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Another process of these tests may be building it.
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=made.parent) as folder:
                target = Path(folder) / name
                pom = str(project / "pom.xml")
                goals = ["package", "dependency:copy-dependencies", "-DincludeScope=runtime"]
                places = [f"-Dtarget={target}", f"-DoutputDirectory={target}"]
                command = [maven, "-q", "-B", "-f", pom, *goals, *places]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stdout + done.stderr
                target.rename(made)
    return made


@contextmanager
def dynamodb_local() -> Iterator[str]:
    """Run DynamoDB Local while the context lasts; yield its URL."""
    libraries, port = (
        built(Path(__file__).with_name("dynamodb_local"), "dynamodb-local"),
        free_port(),
    )
    java = [program("java"), *SHORT_LIVED, "-Xmx256m"]
    paths = [f"-Dsqlite4java.library.path={libraries}", "-cp", f"{libraries}/*"]
    options = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(port)]
    until = time.monotonic() + _START_SECONDS
    with subprocess.Popen(
        [*java, *paths, _SERVER, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            while process.poll() is None and time.monotonic() < until:
                with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port))):
                    break
                time.sleep(0.05)  # it has no other way to say that it is ready
            else:
                raise AssertionError("DynamoDB Local does not start.")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
