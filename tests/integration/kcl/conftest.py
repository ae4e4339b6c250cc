"""A worker of the Kinesis Client Library, built once, and applications that run it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from kinesis_publishers.testing.local_kinesis import LocalKinesis
from tests.integration.kcl.kcl_application import KclApplication

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROJECT = Path(__file__).parent / "worker" / "pom.xml"


@pytest.fixture(scope="session")
def kcl_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the built worker and all that it needs.

    Maven keeps what it has downloaded: the first time takes a minute and Maven Central, later
    ones five seconds.
    """
    if not shutil.which("mvn") or not shutil.which("javac"):
        pytest.skip("The Kinesis Client Library needs Maven and a JDK of version 17.")
    target = tmp_path_factory.mktemp("kcl")
    command = ["mvn", "-q", "-B", "-f", str(_PROJECT), "package", f"-Dtarget={target}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture
def kcl(kcl_libraries: Path, moto_url: str, tmp_path: Path) -> Iterator[KclApplication]:
    name = f"application-{uuid4().hex[:8]}"
    with (
        LocalKinesis.in_thread() as server,
        KclApplication(kcl_libraries, tmp_path, server, moto_url, name) as application,
    ):
        yield application
