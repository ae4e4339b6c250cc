"""Signs calls with Signature Version 4, after the pattern of a request of botocore.

For every call, botocore resolves the endpoint and the signer and merges the headers, at three times
the cost of sending it. The calls of one operation on one stream differ only in the body, the time
and the id of the call. A hypothesis test compares the signatures.

botocore's own clients, as that of STS, sign their calls themselves. This module checks their
credentials, and corrects their clock after a refusal for a wrong time.
"""

from __future__ import annotations

import hmac
import inspect
import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

from attrs import field, frozen
from botocore.auth import AUTH_TYPE_MAPS, SigV4Auth
from botocore.awsrequest import AWSPreparedRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.utils import normalize_url_path

from kinesis_publishers.aws.errors import is_refused_for_time
from kinesis_publishers.clock import ServiceClock, SystemClock
from kinesis_publishers.errors import CredentialsError

_ALGORITHM = "AWS4-HMAC-SHA256"
_TOKEN = "X-Amz-Security-Token"
_DEFAULT_PORTS = {"http": 80, "https": 443}
# These headers differ between calls.
_CHANGING = ("authorization", "content-length", "x-amz-date", _TOKEN.lower())
_TIME = "%Y%m%dT%H%M%SZ"
_CORRECTED = "kinesis-publishers-v4"
_LEGAL = re.compile(r"[!-~]*")
# Their names in AWS_ACCESS_KEY_ID and so on.
_PARTS = ("access key id", "secret access key", "session token")


@frozen(kw_only=True)
class CallPattern:
    """The common part of the calls of one operation on one stream."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    # The names of the signed headers, in lower case and as they are sent.
    _signed: tuple[tuple[str, str], ...]
    _host: str
    _path: str
    _region: str
    _service: str

    @classmethod
    def of_request(cls, request: AWSPreparedRequest) -> CallPattern:
        sent = {name: _text(value) for name, value in request.headers.items()}
        names = {name.lower(): name for name in sent}
        fields = sent[names["authorization"]].removeprefix(_ALGORITHM).split(",")
        values = dict(text.strip().split("=", 1) for text in fields)
        _, _, region, service, _ = values["Credential"].rsplit("/", 4)
        url = urlsplit(request.url)
        signed = [name for name in values["SignedHeaders"].split(";") if name != _TOKEN.lower()]
        return cls(
            url=request.url,
            headers={name: value for name, value in sent.items() if name.lower() not in _CHANGING},
            signed=tuple((name, names.get(name, name)) for name in signed),
            host=_host(url.hostname or "", url.port, url.scheme),
            path=quote(normalize_url_path(url.path), safe="/~"),
            region=region,
            service=service,
        )

    def sign(
        self, body: bytes, *, content_type: str, credentials: ReadOnlyCredentials, at: datetime
    ) -> dict[str, str]:
        """Return the headers of a call with ``body`` at the instant ``at`` (UTC)."""
        time = at.strftime(_TIME)
        headers = {
            **self.headers,
            "Content-Type": content_type,
            "X-Amz-Date": time,
            "amz-sdk-invocation-id": str(uuid.uuid4()),
        }
        signed = self._signed
        if credentials.token:
            headers[_TOKEN] = credentials.token
            signed = tuple(sorted((*signed, (_TOKEN.lower(), _TOKEN))))
        names = ";".join([name for name, _ in signed])
        lines = [f"{name}:{headers.get(sent, self._host)}\n" for name, sent in signed]
        digest = sha256(body).hexdigest()
        request = f"POST\n{self._path}\n\n{''.join(lines)}\n{names}\n{digest}"
        scope = f"{time[:8]}/{self._region}/{self._service}/aws4_request"
        text = f"{_ALGORITHM}\n{time}\n{scope}\n{sha256(request.encode()).hexdigest()}"
        key = _signing_key(credentials.secret_key, scope)
        headers["Authorization"] = (
            f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, "
            f"Signature={hmac.digest(key, text.encode(), 'sha256').hex()}"
        )
        headers["Content-Length"] = str(len(body))
        return headers


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _host(name: str, port: int | None, scheme: str) -> str:
    host = f"[{name}]" if ":" in name else name
    return host if port in (None, _DEFAULT_PORTS.get(scheme)) else f"{host}:{port}"


@lru_cache(maxsize=4)
def _signing_key(secret_key: str, scope: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def check_credentials(frozen: ReadOnlyCredentials, source: str, profile: str | None = None) -> None:
    """Reject credentials that no header can carry, before an HTTP client quotes them.

    Raises:
        CredentialsError: names the value and its ``source``, but does not show it.
    """
    # A user's own class may return values of any type.
    values: Iterable[Any] = frozen
    for name, value in zip(_PARTS, values, strict=False):
        if not value or (isinstance(value, str) and _LEGAL.fullmatch(value)):
            continue
        variable = f"AWS_{name.upper().replace(' ', '_')} in the environment"
        where = variable if source == "env" else source
        of_profile = f" (profile {profile})" if profile and "file" in source else ""
        raise CredentialsError(
            f"The {name} contains white space or other illegal characters. It comes from "
            f"{where}{of_profile}: set it again. echo, for instance, adds a line break.",
            code="IllegalCredentials",
        )


def watch_signatures(session: Any) -> None:
    """Check the credentials, and correct the clock, of the clients of a session from now on."""
    clock = ServiceClock(SystemClock())

    def check(request_signer: Any, **_: Any) -> Any:
        found, profile = request_signer._credentials, session.profile or "default"
        frozen = found and found.get_frozen_credentials()
        if inspect.isawaitable(frozen):
            return check_later(frozen, found.method, profile)
        if frozen:
            check_credentials(frozen, found.method, profile)
        return None

    async def check_later(frozen: Any, source: str, profile: str) -> None:
        check_credentials(await frozen, source, profile)

    def choose(signature_version: str, context: dict[str, Any], **_: Any) -> str | None:
        context[_CORRECTED] = clock
        return _CORRECTED if clock.skew and signature_version == "v4" else None

    session.register("before-sign", check)
    session.register("choose-signer", choose)
    session.register("after-call", partial(learn_time, clock))


def learn_time(clock: ServiceClock, parsed: dict[str, Any], **_: Any) -> None:
    """Make ``clock`` learn the time if the answer in ``parsed`` refuses a call for its time."""
    refusal = parsed.get("Error", {})
    if is_refused_for_time(str(refusal.get("Code")), str(refusal.get("Message"))):
        date = parsed["ResponseMetadata"]["HTTPHeaders"].get("date")
        clock.observe(date, sent_at=clock.machine.now())


class _CorrectedAuth(SigV4Auth):
    def _modify_request_before_signing(self, request: Any) -> None:
        request.context["timestamp"] = request.context[_CORRECTED].now().strftime(_TIME)
        super()._modify_request_before_signing(request)  # type: ignore[misc]


AUTH_TYPE_MAPS[_CORRECTED] = _CorrectedAuth
