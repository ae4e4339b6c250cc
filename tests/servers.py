"""Database servers of this machine's packages, on loopback, each in a directory of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import SystemRandom
from typing import Final, Self

import psutil
import pytest

USER: Final = "kinesis"
PASSWORD: Final = "s3cret-Pa55"
DATABASE: Final = "checkpoints"
_START_SECONDS: Final = 60.0
# PostgreSQL and MariaDB refuse to run as root.
_UNPRIVILEGED: Final = "nobody"


def program(name: str, *places: str) -> str:
    """Return the path of a program; without it the test is skipped, and fails in CI."""
    found = [str(path) for place in places for path in sorted(Path("/").glob(f"{place}/{name}"))]
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") or next(iter(found), None)
    if path is not None:
        return path
    packages = "postgresql mariadb-server redis-server maven"
    reason = f"{name} is not installed: apt-get install {packages}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """Return a port that the system gives nobody, nor that of Redis's cluster bus, 10,000 above."""
    while True:
        port = SystemRandom().randrange(10_000, 20_000)
        with suppress(OSError), closing(socket.create_server(("127.0.0.1", port))):
            return port


class Server(ABC):
    """One server process; ``with`` starts it and ends it, ``kill`` and ``start`` in between.

    ``options`` are added to its command.
    """

    def __init__(self, *options: str) -> None:
        self.options = options
        # Not pytest's: no other user may enter that.
        self.directory = Path(tempfile.mkdtemp(prefix=f"{type(self).__name__}-"))
        self._process: psutil.Popen | None = None

    def __enter__(self) -> Self:
        try:
            if os.geteuid() == 0:
                shutil.chown(self.directory, _UNPRIVILEGED)
            self._initialise()
            # Only now: that took seconds, in which another process could have taken the port.
            self.port = free_port()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.directory)

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is, with user and password."""

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a store on it."""
        return {"kinesis.checkpoint.store": "sql", "kinesis.checkpoint.sql.url": self.url}

    @abstractmethod
    def execute(self, statement: str) -> str:
        """Run a statement, or a command, with all rights; return what it says."""

    @abstractmethod
    def cut_connections(self) -> None:
        """End every connection."""

    @abstractmethod
    def _initialise(self) -> None:
        """Make the files that it needs."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command that serves."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether it takes connections."""

    def start(self) -> None:
        """Start it, and return when it answers; not in a thread that ends before it."""
        with (self.directory / "log").open("ab") as log:
            command = self._unprivileged(self._command())
            self._process = psutil.Popen(command, stdout=log, stderr=log, cwd=self.directory)
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                log_text = (self.directory / "log").read_text(errors="replace")
                raise AssertionError(f"{command[0]} does not start:\n{log_text[-4000:]}")
            time.sleep(0.02)  # it has no other way to say that it is ready

    def own(self, name: str, content: bytes) -> str:
        """Write a file that it alone may read; return its path."""
        path = self.directory / name
        path.write_bytes(content)
        path.chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(path, _UNPRIVILEGED)
        return str(path)

    def kill(self) -> None:
        """End it as a failure of power would, as far as its processes are concerned."""
        if self._process is not None and self._process.poll() is None:
            psutil.wait_procs(self._send(psutil.Process.kill))
        self._process = None

    def run(self, *command: str) -> str:
        """Run a program as the user who owns the files; return what it prints."""
        done = subprocess.run(
            self._unprivileged(list(command)),
            capture_output=True,
            text=True,
            cwd=self.directory,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
        return done.stdout

    def wait_until(self, said: str, statement: str) -> None:
        """Return when the answer to a statement says so; there is no other way to tell."""
        until = time.monotonic() + _START_SECONDS
        while said not in (found := self.execute(statement)):
            assert time.monotonic() < until, f"{said} is not in {found}"
            time.sleep(0.02)

    @staticmethod
    def _unprivileged(command: list[str]) -> list[str]:
        # A test process that is killed takes its servers along; so does the end of the thread.
        wrapped = ["setpriv", "--pdeathsig=KILL"]
        if os.geteuid() == 0:
            wrapped += [f"--reuid={_UNPRIVILEGED}", "--regid=nogroup", "--clear-groups"]
        return [*wrapped, *command]

    def _pings(self, *command: str) -> bool:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def suspend(self) -> None:
        """Let it stand still, with its connections open."""
        self._send(psutil.Process.suspend)

    def resume(self) -> None:
        self._send(psutil.Process.resume)

    def _send(self, signal: Callable[[psutil.Process], None]) -> list[psutil.Process]:
        """Send a signal to the server and to its processes, which may end meanwhile."""
        assert self._process is not None
        children = self._process.children(recursive=True)
        signal(self._process)
        for one in children:
            with suppress(psutil.NoSuchProcess):
                signal(one)
        return [self._process, *children]


class PostgresServer(Server):
    """PostgreSQL; a database for ``USER``, who is a superuser."""

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"

    def _initialise(self) -> None:
        self.own("password", PASSWORD.encode())
        self.run(
            self._binary("initdb"),
            *("-D", "data", "-U", USER, "-A", "scram-sha-256", "--pwfile", "password"),
            *("--no-sync", "-E", "UTF8", "--locale", "C"),
        )
        # Without a server: all it takes is one process on the files.
        subprocess.run(
            self._unprivileged([self._binary("postgres"), "--single", "-D", "data", "postgres"]),
            input=f"CREATE DATABASE {DATABASE}\n",
            text=True,
            cwd=self.directory,
            capture_output=True,
            check=True,
        )

    def _command(self) -> list[str]:
        # What is lost with the machine need not be written for tests that end processes.
        settings = ["fsync=off", "unix_socket_directories=", "listen_addresses=127.0.0.1"]
        options = [part for one in settings for part in ("-c", one)]
        return [
            self._binary("postgres"),
            "-D",
            "data",
            "-p",
            str(self.port),
            *options,
            *self.options,
        ]

    def _answers(self) -> bool:
        address = ("-h", "127.0.0.1", "-p", str(self.port))
        return self._pings(self._binary("pg_isready"), "-q", *address)

    def execute(self, statement: str) -> str:
        return self.run(self._binary("psql"), "-Atq", "-d", self.url, "-c", statement)

    def cut_connections(self) -> None:
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{DATABASE}' AND pid <> pg_backend_pid()"
        )

    @staticmethod
    def _binary(name: str) -> str:
        return program(name, "usr/lib/postgresql/*/bin")


class PostgresStandby(PostgresServer):
    """A copy of another PostgreSQL, which follows it and takes no writes until it is promoted."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__()
        self._primary = primary

    def _initialise(self) -> None:
        copied = ("-D", "data", "-R", "-c", "fast", "--no-sync", "-d", self._primary.url)
        self.run(self._binary("pg_basebackup"), *copied)


class MariaDbServer(Server):
    """MariaDB; a database for ``USER``, who may do everything."""

    @property
    def url(self) -> str:
        return f"mysql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"

    def _initialise(self) -> None:
        self.run(
            program("mariadb-install-db"),
            *self._places(),
            *("--skip-test-db", "--skip-name-resolve", "--auth-root-authentication-method=normal"),
        )
        (self.directory / "init.sql").write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE USER IF NOT EXISTS {USER} IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {USER} WITH GRANT OPTION;\n"
        )

    def _command(self) -> list[str]:
        return [
            program("mariadbd"),
            *self._places(),
            *("--bind-address=127.0.0.1", "--skip-name-resolve"),
            *(f"--port={self.port}", f"--socket={self.directory}/socket"),
            *(f"--init-file={self.directory}/init.sql", "--innodb-flush-log-at-trx-commit=2"),
            *("--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M"),
            *self.options,
        ]

    def _places(self) -> tuple[str, ...]:
        # A server that starts removes what others have in the directory of temporary files.
        return "--no-defaults", f"--datadir={self.directory}/data", f"--tmpdir={self.directory}"

    def _answers(self) -> bool:
        return self._pings(*self._client(), "-e", "SELECT 1")

    def execute(self, statement: str) -> str:
        return self.run(*self._client(), "-N", DATABASE, "-e", statement)

    def cut_connections(self) -> None:
        own = "SELECT id FROM information_schema.processlist WHERE id <> connection_id()"
        for connection in self.execute(f"{own} AND user = '{USER}'").split():
            self.execute(f"KILL {connection}")

    def _client(self) -> tuple[str, ...]:
        address = ("-h127.0.0.1", f"-P{self.port}", f"-u{USER}", f"-p{PASSWORD}")
        return (program("mariadb"), "--no-defaults", *address)


class RedisServer(Server):
    """Redis with a password, and a log that each write waits for."""

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    def _initialise(self) -> None:
        pass

    def _command(self) -> list[str]:
        return [
            program("redis-server"),
            *("--bind", "127.0.0.1", "--port", str(self.port), "--requirepass", PASSWORD),
            *("--masterauth", PASSWORD, "--save", ""),
            *("--appendonly", "yes", "--appendfsync", "always"),
            *self.options,
        ]

    def _answers(self) -> bool:
        return self._pings(*self._client(), "-e", "PING")

    @property
    def properties(self) -> dict[str, str]:
        return {"kinesis.checkpoint.store": "redis", "kinesis.checkpoint.redis.url": self.url}

    def execute(self, statement: str) -> str:
        return self.run(*self._client(), "-e", *shlex.split(statement))

    def cut_connections(self) -> None:
        self.execute("CLIENT KILL TYPE normal")

    def _client(self) -> tuple[str, ...]:
        address = ("-h", "127.0.0.1", "-p", str(self.port), "-a", PASSWORD)
        return (program("redis-cli"), *address, "--no-auth-warning")


SERVERS: Final = [
    pytest.param(fixture, marks=pytest.mark.xdist_group(fixture))
    for fixture in ("postgres", "mariadb", "redis_server")
]
"""The fixtures of servers, as parameters of a test; those of one server run in one process."""
