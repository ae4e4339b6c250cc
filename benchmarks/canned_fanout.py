"""The canned server with SubscribeToShard: over plain HTTP/1.1, and over TLS with HTTP/2.

``python -m benchmarks.canned_fanout --certificate FILE`` prints its two URLs and serves until its
standard input ends.
"""

from __future__ import annotations

import argparse
import ssl
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import trustme

from benchmarks.canned_events import HEARTBEAT_SECONDS, CannedSubscription
from benchmarks.canned_http2 import Http2Connection
from benchmarks.canned_server import Connection, Server, running

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

__all__ = ["FanOutServer", "running_fanout_server"]

_ANSWER = (
    b"HTTP/1.1 200 OK\r\n"
    b"x-amzn-RequestId: e5d2f3a4-0000-4000-8000-0123456789ab\r\n"
    b"Content-Type: application/vnd.amazon.eventstream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


class FanOutServer(NamedTuple):
    """Where a running server is.

    Attributes:
        http_url: speaks HTTP/1.1.
        https_url: speaks HTTP/2, and HTTP/1.1 with clients that do not offer it.
        ca_bundle: the certificates to trust.
    """

    http_url: str
    https_url: str
    ca_bundle: str

    def arguments(self, *, is_secure: bool) -> list[str]:
        """Return the arguments that tell a client where it is."""
        if not is_secure:
            return ["--endpoint", self.http_url]
        return ["--endpoint", self.https_url, "--ca-bundle", self.ca_bundle]


class _FanOutConnection(Connection):
    """Serves one plain connection."""

    def answer(self, operation: str, request: dict[str, Any]) -> None:
        if operation == "SubscribeToShard":
            self._push(CannedSubscription(self.server.service, request))
        else:
            super().answer(operation, request)

    def _push(self, subscription: CannedSubscription) -> None:
        self.connection.sendall(_ANSWER)
        while True:
            frame = subscription.next_frame()
            if frame is not None:
                self.connection.sendall(b"%x\r\n%b\r\n" % (len(frame), frame))
            elif self._client_leaves_within(HEARTBEAT_SECONDS):
                return

    def _client_leaves_within(self, seconds: float) -> bool:
        self.connection.settimeout(seconds)
        try:
            # A subscriber sends nothing more: any data is the end.
            self.connection.recv(1)
        except TimeoutError:
            return False
        finally:
            self.connection.settimeout(None)
        return True


class _TlsConnection(_FanOutConnection):
    """Serves one connection over TLS, in the version that its client prefers."""

    server: _TlsServer

    def setup(self) -> None:
        self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self) -> None:
        connection = cast("ssl.SSLSocket", self.connection)
        if connection.selected_alpn_protocol() != "h2":
            super().handle()
            return
        with suppress(OSError):
            Http2Connection(connection, self.server.service).serve()


class _FanOutServer(Server):
    def handle_error(self, request: Any, client_address: Any) -> None:
        # Clients leave in the middle of a handshake or of an answer.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _TlsServer(_FanOutServer):
    def __init__(self, certificate: str) -> None:
        super().__init__(("127.0.0.1", 0), _TlsConnection)
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(certificate)
        self.context.set_alpn_protocols(["h2", "http/1.1"])

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        # The handler's socket, which TLS has put in place of this one, has been closed by it.
        with suppress(OSError):
            super().shutdown_request(request)


@contextmanager
def running_fanout_server() -> Iterator[FanOutServer]:
    """Run the server in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        ca_bundle, certificate = str(Path(folder, "ca.pem")), str(Path(folder, "server.pem"))
        authority = trustme.CA()
        authority.cert_pem.write_to_path(ca_bundle)
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
        with running("benchmarks.canned_fanout", "--certificate", certificate) as urls:
            http_url, https_url = urls.split()
            yield FanOutServer(http_url, https_url, ca_bundle)


def main() -> None:
    """Serve until the standard input ends."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--certificate", required=True, help="PEM, with its private key")
    arguments = parser.parse_args()
    with (
        _FanOutServer(("127.0.0.1", 0), _FanOutConnection) as plain,
        _TlsServer(arguments.certificate) as secure,
    ):
        for server in (plain, secure):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        ports = plain.server_address[1], secure.server_address[1]
        print(f"http://127.0.0.1:{ports[0]} https://127.0.0.1:{ports[1]}", flush=True)
        sys.stdin.read()
        plain.shutdown()
        secure.shutdown()


if __name__ == "__main__":
    main()
