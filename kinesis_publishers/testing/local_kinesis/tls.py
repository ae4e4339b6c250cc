"""What an https server offers: a certificate of an authority of its own, and protocols."""

from __future__ import annotations

import ssl
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ALPN_NAMES", "HttpVersion", "TlsOptions"]

HttpVersion = Literal["2", "1.1"]
ALPN_NAMES: dict[HttpVersion, str] = {"1.1": "http/1.1", "2": "h2"}

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class TlsOptions:
    """What an https front offers: a certificate for one host, in memory, and protocols.

    Args:
        host: what clients connect to, in addition to the names of the loopback interface.
        http_versions: the protocols, the best one first.
    """

    def __init__(self, host: str, http_versions: Sequence[HttpVersion]) -> None:
        # It brings cryptography with it, which a server without TLS has no use for.
        import trustme

        self._authority = trustme.CA()
        self.http_versions = http_versions
        self._certificate = self._authority.issue_cert(*dict.fromkeys((*_LOCAL_NAMES, host)))

    @contextmanager
    def ca_bundle(self, path: str | None = None) -> Iterator[str]:
        """Write what a client has to trust to ``path``, or for a while to a temporary file."""
        pem = self._authority.cert_pem.bytes()
        if path is not None:
            Path(path).write_bytes(pem)
            yield path
            return
        with tempfile.TemporaryDirectory(prefix="local-kinesis-") as directory:
            temporary = Path(directory, "ca.pem")
            temporary.write_bytes(pem)
            yield str(temporary)

    def server_context(self) -> ssl.SSLContext:
        """Return what a server needs; the protocols are offered by ALPN."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        configure: Any = self._certificate.configure_cert
        configure(context)
        context.set_alpn_protocols([ALPN_NAMES[version] for version in self.http_versions])
        return context
