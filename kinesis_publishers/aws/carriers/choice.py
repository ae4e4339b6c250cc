"""Selects the HTTP client for the subscriptions of an endpoint."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Final

from kinesis_publishers.aws.carriers.carrier import (
    Endpoint,
    SubscriptionCarrier,
    http_2_not_offered,
)
from kinesis_publishers.config import Http2Client, HttpVersion, SubscriptionHttpConfig
from kinesis_publishers.errors import ConfigError

_ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL")
_PACKAGES: Final = {
    Http2Client.HTTPX: (("httpx", "h2"), "efo"),
    Http2Client.PYREQWEST: (("pyreqwest",), "fast"),
}


def check_carrier(http: SubscriptionHttpConfig, url: str) -> None:
    """Check that the configured subscriptions to an endpoint are possible; do no I/O.

    Raises:
        InvalidOptionError: HTTP/2 is required of an endpoint without TLS.
        ConfigError: the configured client is not installed.
    """
    if _speaks_http_1(http, url):
        if http.version is HttpVersion.HTTP_2:
            raise http_2_not_offered(url)
    elif http.http2_client is not Http2Client.HTTPX:
        # The user chose it. The default client may be missing until the first subscription.
        _check_installed(http)


def check_client(http: SubscriptionHttpConfig, url: str | None) -> None:
    """Check that the HTTP client for the subscriptions of a configured endpoint is installed.

    Raises:
        ConfigError: it is not installed; the message says what to install.
    """
    # The environment may name an endpoint: then the first subscription makes the check.
    is_unknown = url is None and any(os.environ.get(name) for name in _ENDPOINT_VARIABLES)
    if not (is_unknown or _speaks_http_1(http, url or "https://kinesis")):
        _check_installed(http)


def _check_installed(http: SubscriptionHttpConfig) -> None:
    packages, extra = _PACKAGES[http.http2_client]
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"enhanced fan-out over HTTP/2 with {SubscriptionHttpConfig.http2_client.full_key} = "
            f"{http.http2_client.value} needs {' and '.join(missing)}: "
            f"pip install 'kinesis-publishers[{extra}]'"
        )


def create_carrier(
    endpoint: Endpoint, http: SubscriptionHttpConfig, max_connections: int
) -> SubscriptionCarrier:
    """Return the carrier for the subscriptions of ``endpoint``; it connects at the first use.

    Raises:
        ConfigError: the client is not installed.
    """
    timeout = http.read_timeout_seconds
    # Imported here: only the chosen client must be installed.
    if _speaks_http_1(http, endpoint.url):
        from kinesis_publishers.aws.carriers.aiohttp_carrier import AiohttpCarrier

        return AiohttpCarrier(
            endpoint, read_timeout_seconds=timeout, max_connections=max_connections
        )
    _check_installed(http)
    requires_http_2 = http.version is HttpVersion.HTTP_2
    if http.http2_client is Http2Client.PYREQWEST:
        from kinesis_publishers.aws.carriers.pyreqwest_carrier import PyreqwestCarrier

        return PyreqwestCarrier(
            endpoint, read_timeout_seconds=timeout, requires_http_2=requires_http_2
        )
    from kinesis_publishers.aws.carriers.httpx_carrier import HttpxCarrier

    return HttpxCarrier(endpoint, read_timeout_seconds=timeout, requires_http_2=requires_http_2)


def _speaks_http_1(http: SubscriptionHttpConfig, url: str) -> bool:
    return http.version is HttpVersion.HTTP_1_1 or not url.lower().startswith("https:")
