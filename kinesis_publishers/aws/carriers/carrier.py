"""The interface of an HTTP client that carries subscriptions, and the endpoint it connects to."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from aiobotocore.session import AioSession
from attrs import field, frozen
from botocore.httpsession import ProxyConfiguration, get_cert_path
from botocore.utils import get_environ_proxies

from kinesis_publishers.aws.errors import map_error
from kinesis_publishers.config.option import show_value
from kinesis_publishers.errors import InvalidOptionError

CONNECT_TIMEOUT_SECONDS = 10.0


@frozen(kw_only=True)
class SignedCall:
    """A POST that is ready to be sent; error messages say ``where``."""

    url: str
    # They have the session token, and a signature that works for some minutes; Host is the URL's.
    headers: Mapping[str, str] = field(repr=False)
    body: bytes
    where: str
    # By this machine's clock; a call is sent at once.
    signed_at: datetime


class SubscriptionResponse(ABC):
    """An answer whose body is streamed through a small buffer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]

    @abstractmethod
    async def read(self) -> bytes:
        """Return the next bytes of the body as soon as there are any; no bytes at its end.

        Bytes that arrived before the connection broke are returned before the error is raised.

        Raises:
            ConnectionFailedError: the connection broke.
        """

    @abstractmethod
    async def close(self) -> None:
        """End the exchange at once, even in the middle of the body. Closing twice is allowed."""


class SubscriptionCarrier(ABC):
    """Sends signed calls, each over a connection that no other call can delay."""

    @abstractmethod
    async def open(self, call: SignedCall) -> SubscriptionResponse:
        """Send ``call`` once; return with the headers, or raise ``ConnectionFailedError``."""

    async def close(self) -> None:  # noqa: B027 - of most, connections belong to the responses
        """Close what the connections share, after all responses."""


@contextmanager
def connection_errors(raised: tuple[type[Exception], ...], where: str) -> Iterator[None]:
    try:
        yield
    except raised as error:
        raise map_error(error, operation="SubscribeToShard", where=where) from error


def http_2_not_offered(url: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"{url} does not offer HTTP/2: set kinesis.stream.efo.http-version to auto or 1.1."
    )


@frozen(kw_only=True)
class Endpoint:
    """The service's address, and the way to it; ``ca_bundle`` is ``None`` for botocore's own."""

    url: str
    ca_bundle: str | None = None
    # It may have a password.
    proxy_url: str | None = field(default=None, repr=partial(show_value, secret=False))

    @classmethod
    def of_session(cls, session: AioSession, url: str, ca_bundle: str | None) -> Endpoint:
        """Return the endpoint ``url`` as a client of ``session`` would reach it.

        A configured ``ca_bundle`` takes precedence over AWS_CA_BUNDLE and the configuration file.
        """
        proxies = ProxyConfiguration(get_environ_proxies(url))
        return cls(
            url=url,
            ca_bundle=ca_bundle or session.get_config_variable("ca_bundle"),
            proxy_url=proxies.proxy_url_for(url),
        )

    @property
    def is_https(self) -> bool:
        return self.url.lower().startswith("https:")

    def tls_context(self) -> ssl.SSLContext:
        """Read the certificates, which may raise an ``InvalidOptionError``; this blocks."""
        try:
            return ssl.create_default_context(cafile=self.ca_bundle or get_cert_path(True))
        except OSError as error:  # ssl.SSLError is one
            raise InvalidOptionError(
                f"The CA certificates of {self.url} in {self.ca_bundle!r} cannot be used: {error}. "
                "Check aws.cabundle (or AWS_CA_BUNDLE): a file of certificates in PEM format."
            ) from error
