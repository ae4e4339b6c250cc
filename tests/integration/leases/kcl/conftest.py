"""A worker of the Kinesis Client Library, built once, and applications that run it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from kinesis_publishers.testing.local_kinesis import LocalKinesis
from tests.integration.leases.kcl.kcl_application import KclApplication
from tests.maven import built

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROJECT = Path(__file__).parent / "worker"


@pytest.fixture(scope="session")
def kcl_libraries() -> Path:
    """The directory of the built worker and all that it needs."""
    if not shutil.which("mvn") or not shutil.which("javac"):
        pytest.skip("The Kinesis Client Library needs Maven and a JDK of version 17.")
    return built(_PROJECT, "kcl")


@pytest.fixture
def kcl(kcl_libraries: Path, dynamodb_url: str, tmp_path: Path) -> Iterator[KclApplication]:
    name = f"application-{uuid4().hex[:8]}"
    with (
        LocalKinesis.in_thread() as server,
        KclApplication(kcl_libraries, tmp_path, server, dynamodb_url, name) as application,
    ):
        yield application
