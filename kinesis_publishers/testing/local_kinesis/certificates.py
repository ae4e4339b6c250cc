"""The certificate of a local server, from an authority that is made for it alone."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["ServerCertificate"]

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class ServerCertificate:
    """A certificate for one host; as a context manager it is on disk for as long as it lasts.

    Args:
        host: the name or address that clients connect to, beside those of the loopback interface.
    """

    def __init__(self, host: str) -> None:
        # It brings cryptography with it, which a server without TLS has no use for.
        import trustme

        self._authority = trustme.CA()
        self._certificate = self._authority.issue_cert(*dict.fromkeys((*_LOCAL_NAMES, host)))
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    @property
    def ca_pem(self) -> bytes:
        """The certificate of the authority: what a client has to trust."""
        pem: bytes = self._authority.cert_pem.bytes()
        return pem

    @property
    def ca_bundle(self) -> str:
        """The path of a file with :attr:`ca_pem`, while the context lasts."""
        if self._directory is None:
            raise RuntimeError("the certificate is on disk only while its context lasts")
        return str(Path(self._directory.name, "ca.pem"))

    def server_context(self, protocols: Sequence[str]) -> ssl.SSLContext:
        """Return what a server needs; ``protocols`` are offered by ALPN, the best one first."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        configure: Any = self._certificate.configure_cert
        configure(context)
        context.set_alpn_protocols(list(protocols))
        return context

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="local-kinesis-")
        Path(self.ca_bundle).write_bytes(self.ca_pem)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.cleanup()
