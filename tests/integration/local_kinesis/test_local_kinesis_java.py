"""The AWS SDK for Java, version 2, as it comes: CBOR, and HTTP/2 without asking for it.

It needs a JDK of version 17, Maven and, the first time, Maven Central::

    KINESIS_PUBLISHERS_JAVA=1 pytest -m java tests/integration/local_kinesis
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.testing.local_kinesis import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parent / "java_sdk"
PASSWORD = "changeit"
EXPECTED = """\
stream ACTIVE recent=true
failed 0
read k=6f6e65 k=00ff
read k=6f6e65 k=00ff
event k=6f6e65 k=00ff behind 0
refused ResourceNotFoundException
done
"""

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        "KINESIS_PUBLISHERS_JAVA" not in os.environ or not shutil.which("mvn"),
        reason="needs Maven, and KINESIS_PUBLISHERS_JAVA in the environment",
    ),
]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("libraries")
    run("mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={target}")
    return target


@pytest.fixture(params=[False, True], ids=["http", "https"])
def server(request: pytest.FixtureRequest) -> Iterator[LocalKinesis]:
    with LocalKinesis.in_thread(tls=request.param) as started:
        started.create_stream("orders")
        yield started


def run(*command: str) -> str:
    region = {"AWS_REGION": "us-east-1"}
    credentials = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env=os.environ | region | credentials,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def trust(server: LocalKinesis, directory: Path) -> list[str]:
    """Return the options that make a JVM trust the server."""
    if server.ca_bundle is None:
        return []
    store = ["-keystore", str(directory / "trust.p12"), "-storepass", PASSWORD]
    run("keytool", "-importcert", "-noprompt", "-alias", "local", "-file", server.ca_bundle, *store)
    return [
        f"-Djavax.net.ssl.trustStore={store[1]}",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    ]


def test_a_program_writes_reads_and_subscribes(
    server: LocalKinesis, libraries: Path, tmp_path: Path
) -> None:
    arn = server.register_consumer("orders", "java")
    options = [*trust(server, tmp_path), "-cp", f"{libraries}/*"]
    output = run("java", *options, "ReadAndWrite.java", server.endpoint_url, "orders", arn)
    assert output == EXPECTED
