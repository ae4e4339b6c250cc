"""What Maven builds or fetches, once, for all runs; and AWS's DynamoDB Local."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tests.servers import free_port, program

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVER = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
_START_SECONDS = 60.0


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
                command = [maven, "-q", "-B", "-f", pom, "package", f"-Dtarget={target}"]
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
    java = [program("java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    paths = [f"-Dsqlite4java.library.path={libraries}", "-cp", f"{libraries}/*"]
    options = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(port)]
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + _START_SECONDS
    with subprocess.Popen(
        [*java, *paths, _SERVER, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            while not _answers(url):
                assert process.poll() is None, "DynamoDB Local does not start"
                assert time.monotonic() < until, "DynamoDB Local does not answer"
                time.sleep(0.05)  # it has no other way to say that it is ready
            yield url
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        urlopen(url).close()
    except HTTPError:
        return True  # what is no call is refused
    except URLError:
        return False
    return True
