"""The AWS SDKs of other languages as they come.

The one for Java, version 2, speaks CBOR, and HTTP/2 without asking for it. It needs a JDK of
version 17, Maven and, the first time, Maven Central::

    KINESIS_PUBLISHERS_JAVA=1 pytest -m java tests/integration/testing

The one for JavaScript, version 3, says GOAWAY on the connection of each subscription once its
answer has begun. It needs Node.js 18, npm and, the first time, the registry of npm.
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

JAVA, JAVASCRIPT = (Path(__file__).parent / name for name in ("java_sdk", "js_sdk"))
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

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("libraries")
    run("mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={target}", cwd=JAVA)
    return target


@pytest.fixture(params=[False, True], ids=["http", "https"])
def server(request: pytest.FixtureRequest) -> Iterator[LocalKinesis]:
    with LocalKinesis.in_thread(tls=request.param) as started:
        started.create_stream("orders")
        yield started


def run(*command: str, cwd: Path) -> str:
    region = {"AWS_REGION": "us-east-1"}
    credentials = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    done = subprocess.run(
        command,
        cwd=cwd,
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
    imported = ["-importcert", "-noprompt", "-alias", "local", "-file", server.ca_bundle]
    run("keytool", *imported, *store, cwd=directory)
    return [
        f"-Djavax.net.ssl.trustStore={store[1]}",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    ]


@pytest.mark.java
@pytest.mark.skipif(
    "KINESIS_PUBLISHERS_JAVA" not in os.environ or not shutil.which("mvn"),
    reason="needs Maven, and KINESIS_PUBLISHERS_JAVA in the environment",
)
def test_a_program_in_java_writes_reads_and_subscribes(
    server: LocalKinesis, libraries: Path, tmp_path: Path
) -> None:
    arn = server.register_consumer("orders", "java")
    options = [*trust(server, tmp_path), "-cp", f"{libraries}/*"]
    output = run(
        "java", *options, "ReadAndWrite.java", server.endpoint_url, "orders", arn, cwd=JAVA
    )
    assert output == EXPECTED


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("js") / "package"
    shutil.copytree(JAVASCRIPT, folder)
    run("npm", "install", "--no-audit", "--no-fund", cwd=folder)
    return folder


@pytest.mark.long
@pytest.mark.skipif(
    not shutil.which("npm") and "CI" not in os.environ, reason="needs Node.js and npm"
)
def test_a_program_in_javascript_keeps_its_subscription(
    server: LocalKinesis, package: Path
) -> None:
    arn = server.register_consumer("orders", "javascript")
    command = ["node", "readAndWrite.js", server.endpoint_url, "orders", arn]
    trusted = f"NODE_EXTRA_CA_CERTS={server.ca_bundle or ''}"
    output = run("env", trusted, *command, cwd=package)
    events = [f"event after {number}" for number in range(1, 50)]
    expected = ["read one", "event one", *events, "refused ResourceNotFoundException"]
    assert output.splitlines() == expected
