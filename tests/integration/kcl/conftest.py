"""A worker of the Kinesis Client Library, built once, and applications that run it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from kinesis_publishers.testing.local_kinesis import LocalKinesis
from tests.integration.kcl.kcl_application import KclApplication

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROJECT = Path(__file__).parent / "worker"


@pytest.fixture(scope="session")
def kcl_libraries() -> Path:
    """The directory of the built worker and all that it needs.

    It is built once, which takes a minute and Maven Central, and kept in the user's cache folder.
    """
    if not shutil.which("mvn") or not shutil.which("javac"):
        pytest.skip("The Kinesis Client Library needs Maven and a JDK of version 17.")
    sources = sorted(path for path in _PROJECT.rglob("*") if path.suffix in {".java", ".xml"})
    digest = sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    built = cache / "kinesis-publishers" / f"kcl-{digest}"
    built.parent.mkdir(parents=True, exist_ok=True)
    with built.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Another process of these tests may be building it.
        if not built.exists():
            with tempfile.TemporaryDirectory(dir=built.parent) as folder:
                target = Path(folder) / "kcl"
                pom = str(_PROJECT / "pom.xml")
                command = ["mvn", "-q", "-B", "-f", pom, "package", f"-Dtarget={target}"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stdout + done.stderr
                target.rename(built)
    return built


@pytest.fixture
def kcl(kcl_libraries: Path, moto_url: str, tmp_path: Path) -> Iterator[KclApplication]:
    name = f"application-{uuid4().hex[:8]}"
    with (
        LocalKinesis.in_thread() as server,
        KclApplication(kcl_libraries, tmp_path, server, moto_url, name) as application,
    ):
        yield application
