"""Runs what a person runs, and keeps what the screen then shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import boto3

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_WITHOUT = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_PROFILE")


class Screen:
    """Runs programs as a person does, and says what they write to standard error."""

    def __init__(self, server: LocalKinesis, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self.environ = {key: one for key, one in os.environ.items() if key not in _WITHOUT} | {
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(folder / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
            "XDG_STATE_HOME": str(folder),
        }

    def has_credentials(self) -> None:
        self.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}

    def python(self, program: str) -> str:
        """Run ``program``, a file of the person's."""
        file = self._folder / "mine.py"
        endpoint = f"ENDPOINT = {self._server.endpoint_url!r}\n"
        file.write_text(endpoint + dedent(program))
        return self._shown([sys.executable, str(file)])

    def command(self, *arguments: str) -> str:
        arguments = tuple(one.replace("ENDPOINT", self._server.endpoint_url) for one in arguments)
        return self._shown([sys.executable, "-m", "kinesis_publishers.cli.main", *arguments])

    def spark(self, *command: str, status: int = 0) -> str:
        """Return standard output and standard error of a program in Python that starts Spark."""
        for _ in range(3):
            ended = subprocess.run(
                [sys.executable, *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=300,
                env=self.environ,
            )
            # Spark gives a worker ten seconds to start: too few on a busy machine.
            if "Python worker failed to connect back" not in ended.stdout:
                break
        assert ended.returncode == status, ended.stdout
        return self.without_chance(ended.stdout)

    def _shown(self, command: list[str]) -> str:
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env=self.environ
        )
        assert ended.returncode
        return self.without_chance(ended.stderr)

    def without_chance(self, text: str) -> str:
        """Return ``text`` without what differs from run to run."""
        text = text.replace(f"{self._folder}/", "").replace(self._server.endpoint_url, "URL")
        text = re.sub(r"\b\d{56}\b", "NUMBER", text)
        text = re.sub(r"\b\d+(\.\d+)? s\b", "N s", text)
        text = re.sub(r"\bfailed \d+ times\b", "failed N times", text)
        return re.sub(r"\d\d:\d\d:\d\d UTC", "TIME", text)


def register_consumers(server: LocalKinesis, count: int) -> None:
    client = boto3.client(
        "kinesis",
        endpoint_url=server.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    arn = client.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]
    for number in range(count):
        client.register_stream_consumer(
            StreamARN=arn["StreamARN"], ConsumerName=f"consumer-{number:02}"
        )
    client.close()


def without_marks(text: str) -> str:
    """Return a traceback without its lines of carets, which differ between versions of Python."""
    return re.sub(r"^ +[\^~]+\n", "", text, flags=re.MULTILINE)
