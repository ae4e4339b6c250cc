"""The same work for any daemon: a stream, a processor, and what it was told.

With the KCL's jars the Java daemon's transcript, ``transcript.json``, is made again by
``python -m tests.integration.cli.transcripts JARS``, on the URL of a DynamoDB in ``DYNAMODB_URL``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers import UserRecord
from kinesis_publishers.aggregation import pack_user_records
from kinesis_publishers.testing.local_kinesis import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable

TRANSCRIPT: Final = Path(__file__).with_name("transcript.json")
_PROCESSOR: Final = Path(__file__).with_name("transcribing_processor.py")
_DAEMON: Final = "software.amazon.kinesis.multilang.MultiLangDaemon"
STREAM: Final = "orders"


def fill(server: LocalKinesis) -> None:
    """Put records and an aggregate into a shard that then has two children, one with a record."""
    server.create_stream(STREAM, 1)
    users = [UserRecord(data=b"in %d" % one, partition_key="inner") for one in range(3)]
    server.put_many(STREAM, [("key", b"first"), ("key", b"second")])
    server.put_many(STREAM, [("key", pack_user_records(users).data)])
    server.reshard(STREAM, 2)
    server.put_many(STREAM, [("key", b"last")])


def command(folder: Path) -> str:
    """Return what a file of the daemon calls ``executableName``."""
    return f"{sys.executable} -SE {_PROCESSOR} {folder}"


def is_complete(folder: Path) -> bool:
    """Return whether the processors have done all but stop."""
    texts = [path.read_text() for path in folder.glob("shardId-*")]
    return len(texts) == 3 and any("bGFzdA==" in text and text.endswith("\n") for text in texts)


def transcript(server: LocalKinesis, folder: Path) -> dict[str, list[Any]]:
    """Return what the processor of each shard was told, with names for numbers and times."""
    stored = [one for shard in server.records(STREAM).values() for one in shard]
    names = {one.sequence_number: f"the number of {i}" for i, one in enumerate(stored)}
    names |= {str(int(number) + 1): f"after {name}" for number, name in names.items()}

    def named(text: str) -> str:
        return re.sub(r"\d{50,}", lambda found: names[found[0]], text)

    def timeless(message: dict[str, Any]) -> dict[str, Any]:
        for record in message.get("records", ()):
            record["approximateArrivalTimestamp"] = type(
                record["approximateArrivalTimestamp"]
            ).__name__
        return message

    return {
        path.name: [timeless(json.loads(named(line))) for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("shardId-*"))
    }


def _properties(server: LocalKinesis, folder: Path) -> dict[str, str]:
    return {
        "executableName": command(folder),
        "streamName": STREAM,
        "applicationName": folder.name,
        "AwsCredentialsProvider": "DefaultCredentialsProvider",
        "initialPositionInStream": "TRIM_HORIZON",
        "regionName": "us-east-1",
        "kinesisEndpoint": server.endpoint_url,
        "dynamoDBEndpoint": os.environ["DYNAMODB_URL"],
        "retrievalMode": "POLLING",
        "metricsLevel": "NONE",
        "shutdownGraceMillis": "10000",
        "clientVersionConfig": "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X",
    }


def _wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.5)


def main() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    with LocalKinesis.in_thread() as server, tempfile.TemporaryDirectory() as name:
        folder, file = Path(name), Path(name) / "app.properties"
        fill(server)
        given = _properties(server, folder)
        file.write_text("".join(f"{key} = {value}\n" for key, value in given.items()))
        java = ["java", "-cp", f"{sys.argv[1]}/*", _DAEMON, "--properties-file", str(file)]
        with subprocess.Popen(java, env=os.environ | keys) as daemon:
            _wait_for(lambda: is_complete(folder))
            daemon.terminate()
            daemon.wait(60)
        found = transcript(server, folder)
    TRANSCRIPT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
