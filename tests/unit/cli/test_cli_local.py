"""``kinesis-publishers local``: what it prints, how it ends, what it says when it cannot serve."""

from __future__ import annotations

import errno
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

import boto3
import pytest
from click.testing import CliRunner

from kinesis_publishers import Properties
from kinesis_publishers.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMAND = [sys.executable, "-m", "kinesis_publishers.cli.main", "local", "--port", "0"]


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*_COMMAND, "--stream", "orders", "--shards", "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _read_properties(process: subprocess.Popen[str]) -> dict[str, str]:
    assert process.stdout is not None
    found: dict[str, str] = {}
    for line in process.stdout:
        key, separator, value = line.strip().partition("=")
        if separator:
            found[key] = value
        if key == "kinesis.stream.initpos":
            break
    return found


def test_the_printed_properties_read_the_stream_it_created(server: subprocess.Popen[str]) -> None:
    properties = _read_properties(server)
    Properties.parse(properties)
    client = boto3.client(
        "kinesis",
        region_name=properties["aws.region"],
        endpoint_url=properties["aws.endpoint"],
        aws_access_key_id=properties["aws.credentials.provider.basic.accesskeyid"],
        aws_secret_access_key=properties["aws.credentials.provider.basic.secretkey"],
    )
    shards = client.list_shards(StreamName=properties["kinesis.streams"])["Shards"]
    client.close()
    assert properties["kinesis.streams"] == "orders"
    assert len(shards) == 3


def test_an_interrupt_ends_it_without_an_error(server: subprocess.Popen[str]) -> None:
    _read_properties(server)
    server.send_signal(signal.SIGINT)
    _, errors = server.communicate(timeout=60)
    assert (server.returncode, errors) == (0, "")


def test_a_port_in_use_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["local", "--port", str(port)])
    assert result.exit_code == 1
    assert f"Port {port} of 127.0.0.1 is in use" in result.output


def test_an_address_of_another_machine_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # Some machines may listen on any address; the real refusal is this.
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    result = CliRunner().invoke(main, ["local", "--port", "0", "--host", "192.0.2.1"])
    assert result.exit_code == 1
    assert "Cannot listen on 192.0.2.1" in result.output


def test_a_missing_extra_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    package = "kinesis_publishers.testing.local_kinesis"
    for name in [name for name in sys.modules if name.startswith(package)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    result = CliRunner().invoke(main, ["local", "--port", "0"])
    assert result.exit_code == 1
    assert "'local' needs 'aiohttp'" in result.output
    assert "pip install 'kinesis-publishers[local]'" in result.output


def test_a_name_that_no_stream_can_have_is_refused() -> None:
    result = CliRunner().invoke(main, ["local", "--port", "0", "--stream", "a b"])
    assert result.exit_code == 2
    assert "'a b' is not the name of a stream" in result.output
