"""``kinesis-publishers local``: what it prints, how it ends, what it says when it cannot serve."""

from __future__ import annotations

import errno
import io
import os
import signal
import socket
import subprocess
import sys
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import boto3
import pytest
from click.testing import CliRunner

from kinesis_publishers import Properties
from kinesis_publishers.cli.main import main
from tests.unit.cli.cli_support import run_without

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMAND = [sys.executable, "-m", "kinesis_publishers.cli.main", "local", "--port", "0"]


@contextmanager
def _running(*options: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*_COMMAND, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    with _running("--stream", "orders", "--shards", "3") as process:
        yield process


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


def _list_shards(properties: dict[str, str]) -> list[object]:
    Properties.parse(properties)
    client = boto3.client(
        "kinesis",
        region_name=properties["aws.region"],
        endpoint_url=properties["aws.endpoint"],
        verify=properties.get("aws.cabundle"),
        aws_access_key_id=properties["aws.credentials.provider.basic.accesskeyid"],
        aws_secret_access_key=properties["aws.credentials.provider.basic.secretkey"],
    )
    shards = client.list_shards(StreamName=properties["kinesis.streams"])["Shards"]
    client.close()
    return list(shards)


def test_the_printed_properties_read_the_stream_it_created_until_an_interrupt(
    server: subprocess.Popen[str],
) -> None:
    properties = _read_properties(server)
    assert properties["kinesis.streams"] == "orders"
    assert len(_list_shards(properties)) == 3
    server.send_signal(signal.SIGINT)
    _, errors = server.communicate(timeout=60)
    assert (server.returncode, errors) == (0, "")


def test_with_tls_the_printed_properties_name_the_ca_file_it_left(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    with _running("--tls", "--ca-file", str(ca_file)) as process:
        properties = _read_properties(process)
        assert properties["aws.endpoint"].startswith("https://127.0.0.1:")
        assert properties["aws.cabundle"] == str(ca_file)
        assert len(_list_shards(properties)) == 4
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert ca_file.read_text().startswith("-----BEGIN CERTIFICATE-----")


def test_a_ca_file_without_tls_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["local", "--port", "0", "--ca-file", str(tmp_path / "ca")])
    assert result.exit_code == 2
    assert "add --tls" in result.output


def test_a_ca_file_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "ca.pem"
    result = CliRunner().invoke(main, ["local", "--port", "0", "--tls", "--ca-file", str(path)])
    assert result.exit_code == 1
    assert f"Cannot write {path}: No such file or directory" in result.output


def test_with_tls_a_temporary_ca_file_lasts_until_a_request_to_terminate() -> None:
    with _running("--tls") as process:
        properties = _read_properties(process)
        ca_file = Path(properties["aws.cabundle"])
        assert len(_list_shards(properties)) == 4
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors, ca_file.exists()) == (0, "", False)


class EndingOutput(io.StringIO):
    """Asks to terminate where Python swallows what a handler raises."""

    def write(self, text: str) -> int:
        if "kinesis.stream.initpos" in text:
            one = {self}
            _ = weakref.ref(one, lambda _: signal.raise_signal(signal.SIGTERM))
            del one
        return super().write(text)


@pytest.fixture
def as_in_a_new_process() -> Iterator[None]:
    """A Spark session of an earlier test leaves a handler of Ctrl-C of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("as_in_a_new_process")
def test_a_request_to_terminate_is_never_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", EndingOutput())
    main.main(["local", "--port", "0"], standalone_mode=False)


def test_its_output_is_a_configuration_for_the_other_commands(
    server: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert server.stdout is not None
    file = tmp_path / "local.properties"
    with file.open("w") as output:
        for line in server.stdout:
            output.write(line)
            if line.startswith("kinesis.stream.initpos="):
                break
    assert file.read_text().startswith("# Kinesis at http://127.0.0.1:")
    put = CliRunner().invoke(main, ["put", "--config", str(file), "a record"])
    assert put.exit_code == 0, put.output
    tail = CliRunner().invoke(main, ["tail", "--config", str(file), "-n", "1"])
    assert tail.output.endswith("a record\n")


def test_a_port_in_use_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["local", "--port", str(port)])
    assert result.exit_code == 1
    assert f"Port {port} of 127.0.0.1 is in use" in result.output


def test_an_output_without_room_is_no_matter_of_the_port() -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            _COMMAND, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: The output cannot be written: No space left on device.")
    assert ended.stderr.count("\n") == 1


def test_a_reader_that_has_gone_ends_it_in_silence() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe:
        ended = subprocess.run(
            _COMMAND, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert (ended.returncode, ended.stderr) == (1, "")


def test_an_address_of_another_machine_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # Some machines may listen on any address; the real refusal is this.
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    result = CliRunner().invoke(main, ["local", "--port", "0", "--host", "192.0.2.1"])
    assert result.exit_code == 1
    assert "Cannot listen on 192.0.2.1" in result.output


@pytest.mark.parametrize(
    ("missing", "options"), [("aiohttp", ()), ("trustme", ("--tls",)), ("h2", ("--tls",))]
)
def test_a_missing_extra_is_a_clear_error(missing: str, options: tuple[str, ...]) -> None:
    ended = run_without(missing, "local", "--port", "0", *options)
    assert ended.returncode == 1
    assert missing in ended.stderr
    assert "pip install 'kinesis-publishers[local]'" in ended.stderr


@pytest.mark.parametrize("name", ["a b", "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"])
@pytest.mark.parametrize(
    "arguments",
    [["local", "--port", "0", "--stream"], ["create", "--region", "us-east-1"]],
    ids=" ".join,
)
def test_a_name_that_no_stream_can_have_is_refused(arguments: list[str], name: str) -> None:
    result = CliRunner().invoke(main, [*arguments, name])
    assert result.exit_code == 2
    assert f"{name!r} is not the name of a stream" in " ".join(result.output.split())
