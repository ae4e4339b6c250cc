"""How the endpoint is reached: the certificates and the proxy that botocore would use."""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING

from attrs import field, frozen
from botocore.httpsession import ProxyConfiguration, get_cert_path
from botocore.utils import get_environ_proxies

from kinesis_publishers.config.option import show_value
from kinesis_publishers.errors import InvalidOptionError

if TYPE_CHECKING:
    from aiobotocore.session import AioSession

__all__ = ["Endpoint"]


@frozen(kw_only=True)
class Endpoint:
    """The endpoint of the subscriptions.

    Attributes:
        url: its URL.
        ca_bundle: the configured file of CA certificates, None for botocore's own.
        proxy_url: the proxy, with its user and password; None for none.
    """

    url: str
    ca_bundle: str | None = None
    # It may have a password.
    proxy_url: str | None = field(default=None, repr=partial(show_value, secret=False))

    @classmethod
    def of_session(cls, session: AioSession, url: str, ca_bundle: str | None) -> Endpoint:
        """Return the endpoint ``url`` as a client of ``session`` would reach it.

        Args:
            session: knows AWS_CA_BUNDLE and the configuration file.
            url: the URL that was resolved.
            ca_bundle: the file that the user has named, which goes first.
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
        """Return a context that trusts the certificates. Reads files: not on the event loop.

        Raises:
            InvalidOptionError: the configured file cannot be used.
        """
        try:
            return ssl.create_default_context(cafile=self.ca_bundle or get_cert_path(True))
        except OSError as error:  # ssl.SSLError is one
            raise self.unusable_ca_bundle(error) from error

    def unusable_ca_bundle(self, error: Exception) -> InvalidOptionError:
        """Return the error for a file of certificates that cannot be read."""
        return InvalidOptionError(
            f"The CA certificates of {self.url} in {self.ca_bundle!r} cannot be used: {error}. "
            "Check aws.cabundle (or AWS_CA_BUNDLE): a file of certificates in PEM format."
        )
