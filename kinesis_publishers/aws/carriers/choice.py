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
from kinesis_publishers.config import HttpVersion, SubscriptionHttpConfig
from kinesis_publishers.errors import ConfigError

_ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL")


def check_carrier(
    http: SubscriptionHttpConfig, url: str | None, *, subscribes: bool = False
) -> None:
    """Check that the configured subscriptions to an endpoint are possible; do no I/O.

    HTTP/2 needs a package, which may be missing in a process that never ``subscribes``.

    Raises:
        InvalidOptionError: HTTP/2 is required of an endpoint without TLS.
        ConfigError: the package is not installed; the message says what to install.
    """
    if url is None and any(map(os.environ.get, _ENDPOINT_VARIABLES)):
        return  # It is checked when the data plane has found it.
    # AWS's own endpoints are https.
    url = url or "https://kinesis"
    if not _speaks_http_1(http, url):
        if subscribes:
            _check_installed()
    elif http.version is HttpVersion.HTTP_2:
        raise http_2_not_offered(url)


def _check_installed() -> None:
    if find_spec("h2") is None:
        raise ConfigError(
            "enhanced fan-out over HTTP/2 needs h2: pip install 'kinesis-publishers[efo]'"
        )


def create_carrier(
    endpoint: Endpoint, http: SubscriptionHttpConfig, max_connections: int
) -> SubscriptionCarrier:
    """Return the carrier for subscriptions that :func:`check_carrier` allows, not connected yet."""
    # Imported here: only what is chosen must be installed.
    if _speaks_http_1(http, endpoint.url):
        from kinesis_publishers.aws.carriers.aiohttp_carrier import AiohttpCarrier

        return AiohttpCarrier(
            endpoint,
            read_timeout_seconds=http.read_timeout_seconds,
            max_connections=max_connections,
        )
    _check_installed()
    from kinesis_publishers.aws.carriers.http2_carrier import Http2Carrier

    return Http2Carrier(endpoint, http, max_connections)


def _speaks_http_1(http: SubscriptionHttpConfig, url: str) -> bool:
    return http.version is HttpVersion.HTTP_1_1 or not url.lower().startswith("https:")
