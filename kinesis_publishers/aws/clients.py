"""Opens clients of AWS services that send each call once."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

import botocore.session
import orjson
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore import xform_name
from botocore.config import Config
from botocore.loaders import create_loader
from botocore.utils import get_environ_proxies

from kinesis_publishers.aws.credentials import build_aio_session, build_session
from kinesis_publishers.clock import Clock, ServiceClock
from kinesis_publishers.config import AwsConfig
from kinesis_publishers.config.sections.aws import AWS_DOMAINS
from kinesis_publishers.errors import ConfigError
from kinesis_publishers.model.sources import stream_name_of

_S = TypeVar("_S", bound=botocore.session.Session)
_STRATEGY = "RecordDistributionStrategy"
_SENT_AT = "kinesis_publishers.sent_at"
_REGION = r"[a-z]+(-[a-z]+)+-[0-9]+"
_PROXY = r"(?i)((https?:)?//)?([^\s/?#\[\]]*@)?(\[[0-9a-f:]+\]|[^\s/?#@:]+)(:[0-9]{1,5})?/?"
# Each session would parse the models of the services again.
_loader_of = lru_cache(maxsize=4)(create_loader)


def _with_models(session: _S) -> _S:
    """Let a session share the models that the process has read."""
    session.register_component("data_loader", _loader_of(session.get_config_variable("data_path")))
    return session


def _arguments(
    kind: type[Config], aws: AwsConfig, service: str, endpoint_url: str | None, **settings: Any
) -> dict[str, Any]:
    is_certified = service == "kinesis" or endpoint_url is not None
    # Only kinesis_publishers.retry repeats calls.
    retries = {"total_max_attempts": 1, "mode": "standard"}
    common = {"connect_timeout": 10.0, "read_timeout": 10.0, "retries": retries}
    return {
        "service_name": service,
        "region_name": aws.region,
        "endpoint_url": endpoint_url,
        # The CA bundle is for Kinesis, or for an endpoint other than AWS's own.
        "verify": aws.ca_bundle if is_certified else None,
        "config": kind(**{**common, "user_agent_extra": "kinesis-publishers", **settings}),
    }


def open_client(aws: AwsConfig, service: str, endpoint_url: str | None, **settings: Any) -> Any:
    """Return a client of boto3 with the credentials of ``aws``, and settings of a ``Config``.

    Without an ``endpoint_url`` it calls AWS. This blocks.
    """
    # Many processes never need boto3.
    import boto3

    session = _with_models(build_session(aws))
    client: Any = boto3.Session(botocore_session=session, region_name=aws.region).client(
        **_arguments(Config, aws, service, endpoint_url, **settings)
    )
    _check_way_to(client)
    return client


@asynccontextmanager
async def open_aio_client(
    aws: AwsConfig,
    service: str,
    endpoint_url: str | None,
    session: AioSession | None = None,
    **settings: Any,
) -> AsyncIterator[Any]:
    """Open a client of aiobotocore in the same way; a given ``session`` is built already."""
    session = _with_models(session or build_aio_session(aws))
    arguments = _arguments(AioConfig, aws, service, endpoint_url, **settings)
    async with session.create_client(**arguments) as client:
        _check_way_to(client)
        yield client


def _check_way_to(client: Any) -> None:
    """Raise an error for settings with which a client can never reach its endpoint."""
    if client.meta.service_model.service_name == "kinesis":
        # A botocore that does not know the member drops it from answers.
        summary = client.meta.service_model.shape_for("StreamDescriptionSummary")
        summary._shape_model["members"].setdefault(_STRATEGY, {"shape": "StreamStatus"})
    region, url = str(client.meta.region_name), urlsplit(client.meta.endpoint_url)
    host, variable = url.hostname or "", f"{url.scheme.upper()}_PROXY"
    if is_of_aws(client) and not re.fullmatch(_REGION, region):
        raise ConfigError(f"aws.region: AWS has no region {region!r}; they look like us-east-1.")
    proxy = get_environ_proxies(url.geturl()).get(url.scheme)
    if not proxy:
        return
    if not re.fullmatch(_PROXY, proxy):
        raise ConfigError(
            f"{variable} is not a URL like http://user:password@host:port. SOCKS proxies are not "
            "supported. In a password, write %23 for #, %2F for / and so on."
        )
    for entry in map(str.strip, getproxies().get("no", "").split(",")):
        if "/" in entry and _is_in_network(host, entry):
            raise ConfigError(
                f"NO_PROXY has {entry}, but botocore does not support networks there: add {host}, "
                f"or unset {variable}."
            )


def is_of_aws(client: Any) -> bool:
    """Return whether a client calls AWS's own hosts, not an emulator."""
    return (urlsplit(client.meta.endpoint_url).hostname or "").endswith(AWS_DOMAINS)


def _is_in_network(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


def method_of(client: Any, operation: str) -> Any:
    """Return the method of ``client`` that calls ``operation``, such as ``GetRecords``."""
    return getattr(client, xform_name(operation))


def watch_clock(client: Any, clock: Clock | None) -> None:
    """Make ``clock`` learn the service's time from each answer to ``client``."""
    if not isinstance(clock, ServiceClock):
        return

    def note_sending(context: dict[str, Any], **_: Any) -> None:
        context[_SENT_AT] = clock.machine.now()

    def note_answer(http_response: Any, context: dict[str, Any], **_: Any) -> None:
        clock.observe(http_response.headers.get("Date"), sent_at=context[_SENT_AT])

    client.meta.events.register("before-call.kinesis", note_sending)
    client.meta.events.register("after-call.kinesis", note_answer)


def name_streams_if_asked(hooks: Any) -> None:
    """Make a client send names, not ARNs, to a service that asks for them; AWS never does."""

    def repeat(response: Any, operation: Any, request_dict: dict[str, Any], **_: Any) -> int | None:
        # Some versions also pass other objects.
        answer = response[1] if response and isinstance(response[1], dict) else {}
        before = request_dict["body"]
        if asks_for_name(answer):
            _put_name(request_dict, operation)
        if request_dict["body"] == before:
            return None
        hooks.register("before-call.kinesis", _put_name, unique_id=__name__)
        return 0  # the seconds after which botocore sends it again

    hooks.register("needs-retry.kinesis", repeat)


def asks_for_name(refusal: Mapping[str, Any]) -> bool:
    """Return whether botocore reports a refusal for lack of a StreamName."""
    error = refusal.get("Error", {})
    # The name of a missing stream may contain the word.
    is_missing = error.get("Code") == "ResourceNotFoundException"
    return not is_missing and "streamname" in str(error.get("Message")).lower()


def _put_name(params: dict[str, Any], model: Any, **_: Any) -> None:
    request = orjson.loads(params["body"])
    if "StreamARN" in request and "StreamName" in model.input_shape.members:
        request["StreamName"] = stream_name_of(request.pop("StreamARN"))
        params["body"] = orjson.dumps(request)
