"""Makes a session of botocore or aiobotocore use the configured credentials.

Both get them from the providers of botocore: aiobotocore would need a twin of each. Only what has
to be renewed takes a thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from types import SimpleNamespace
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from aiobotocore.credentials import AioCredentials
from aiobotocore.session import AioSession
from attrs import frozen
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    AssumeRoleWithWebIdentityCredentialFetcher,
    Credentials,
    DeferredRefreshableCredentials,
    EnvProvider,
    ReadOnlyCredentials,
    RefreshableCredentials,
    create_credential_resolver,
)
from botocore.exceptions import BotoCoreError
from botocore.session import Session
from botocore.utils import FileWebIdentityTokenLoader

from kinesis_publishers.aws.signing import watch_signatures
from kinesis_publishers.config import AwsConfig, CredentialsConfig, CredentialsProvider
from kinesis_publishers.config.plugins import load_class
from kinesis_publishers.errors import (
    ConfigError,
    CredentialsError,
    MissingOptionError,
    PluginLoadError,
)

_SessionT = TypeVar("_SessionT", Session, AioSession)
_Loader: TypeAlias = Callable[[], Credentials | None]

# What follows the profile in botocore's chain: PROFILE must not fall through to it.
_BEHIND_PROFILE: Final = ("ec2-credentials-file", "boto-config", "container-role", "iam-role")
# Of botocore: how long before the end all calls wait for a renewal.
_MANDATORY_SECONDS: Final = 600


class RenewedInThread(AioCredentials):  # type: ignore[misc]
    """Credentials of botocore whose renewal blocks, for aiobotocore."""

    def __init__(self, found: Credentials) -> None:
        super().__init__("", "", method=found.method)
        self._found, self._renewing = found, asyncio.Lock()
        self._last: Any = None

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        found = self._found
        if not isinstance(found, RefreshableCredentials):
            # A custom class has to be asked for each call.
            return await asyncio.to_thread(found.get_frozen_credentials)
        must_wait = self._last is None or found.refresh_needed(_MANDATORY_SECONDS)
        # While one call renews, or tries to, the others use what is still valid.
        if must_wait or (found.refresh_needed() and not self._renewing.locked()):
            async with self._renewing:
                if self._last is None or found.refresh_needed():
                    self._last = await asyncio.to_thread(found.get_frozen_credentials)
        return self._last  # type: ignore[no-any-return]


async def _loaded_in_thread(session: Session) -> AioCredentials | None:
    found = await asyncio.to_thread(session.get_credentials)
    if type(found) is Credentials:
        return AioCredentials(found.access_key, found.secret_key, found.token, found.method)
    return found and RenewedInThread(found)


class _CustomCredentials(Credentials):
    def __init__(self, loaded: Any) -> None:
        found = _freeze(loaded)
        super().__init__(
            found.access_key or "", found.secret_key or "", found.token, method="custom"
        )
        self._loaded = loaded

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return _freeze(self._loaded)


def _call_class(config: CredentialsConfig) -> Any:
    reference = config.custom_class or ""
    custom: Any = load_class(reference, object)
    if not callable(getattr(custom, "load", None)):
        raise PluginLoadError(f"{reference} has no load(), which must return the credentials")
    loaded = custom(config.properties.to_dict() if config.properties else {}).load()
    missing = [name for name in ("access_key", "secret_key") if not hasattr(loaded, name)]
    if missing:
        raise PluginLoadError(
            f"{reference}.load() returned {type(loaded).__name__} without {' and '.join(missing)}"
        )
    return loaded


def _freeze(loaded: Any) -> ReadOnlyCredentials:
    # botocore's own refreshing credentials give three values that belong together only here. The
    # credentials of aiobotocore are a subclass whose method is async.
    if isinstance(loaded, Credentials) and not iscoroutinefunction(loaded.get_frozen_credentials):
        return loaded.get_frozen_credentials()
    return ReadOnlyCredentials(loaded.access_key, loaded.secret_key, getattr(loaded, "token", None))


@frozen
class _SourceCredentials:
    _session: Session
    _hint: str

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        found = self._session.get_credentials()
        if found is None:
            # Not one of botocore's errors, which count as temporary.
            raise CredentialsError(f"{self._hint}. Check aws.credentials.provider.role.provider.")
        return found.get_frozen_credentials()


def build_session(config: AwsConfig) -> Session:
    """Return a new session with the region and the credentials of ``config``.

    Roles are assumed when a client first signs a request, and again before their credentials
    expire. STS is called in the region of ``config``, which must be resolved.

    Raises:
        PluginLoadError: the class of CUSTOM cannot be loaded.
        MissingOptionError: WEB_IDENTITY_TOKEN lacks its role or its token file.
    """
    session: Session = _configured(Session(), config)
    provider = SimpleNamespace(load_credentials=_loader(session, config))
    session.register_component("credential_provider", provider)
    return session


def build_aio_session(config: AwsConfig) -> AioSession:
    """Return the same for aiobotocore: nothing that it waits for blocks the event loop."""
    session = _configured(AioSession(), config)
    provider = SimpleNamespace(load_credentials=partial(_loaded_in_thread, build_session(config)))
    session.register_component("credential_provider", provider)
    return session


def _configured(session: _SessionT, config: AwsConfig) -> _SessionT:
    if config.region:
        session.set_config_variable("region", config.region)
    credentials = config.credentials
    if credentials.provider is CredentialsProvider.PROFILE:
        # Its region counts too.
        session.set_config_variable("profile", credentials.profile_name or "default")
        if credentials.profile_path:
            path = os.path.expanduser(credentials.profile_path)
            session.set_config_variable("credentials_file", path)
    watch_signatures(session)
    return session


def region_of_machine(config: AwsConfig) -> str | None:
    """Return the environment's or the profile's region; ``ConfigError`` if it cannot be read."""
    # The SDKs of other languages, Lambda and ECS use the first; botocore knows only the second.
    region = os.environ.get("AWS_REGION")
    try:
        # With the provider PROFILE it is the region of that profile.
        session = build_session(config)
        return region or session.get_config_variable("region")
    except BotoCoreError as error:
        raise ConfigError(f"The AWS configuration of this machine: {error}") from error


def _loader(session: Session, aws: AwsConfig) -> _Loader:
    """Return what loads the credentials; ``session`` has the profile and makes clients for STS."""
    config = aws.credentials
    match config.provider:
        case CredentialsProvider.AUTO:
            return _chain(session).load_credentials  # type: ignore[no-any-return]
        case CredentialsProvider.BASIC:
            return lambda: Credentials(
                config.access_key_id or "", config.secret_key or "", config.session_token, "basic"
            )
        case CredentialsProvider.ENV_VAR:
            return EnvProvider().load
        case CredentialsProvider.PROFILE:
            return _profile_loader(session)
        case CredentialsProvider.ASSUME_ROLE:
            return _role_loader(session, aws)
        case CredentialsProvider.WEB_IDENTITY_TOKEN:
            return _web_identity_loader(session, config)
        case CredentialsProvider.CUSTOM:
            return lambda: _CustomCredentials(_call_class(config))


def _chain(session: Session) -> Any:
    """Return botocore's chain of providers, without prompts on a terminal."""
    resolver: Any = create_credential_resolver(session)
    resolver.get_provider("assume-role")._prompter = _refuse_to_ask
    return resolver


def _refuse_to_ask(prompt: str) -> NoReturn:
    raise CredentialsError(
        # "Enter MFA code for <ARN>: "
        f"The profile needs a code of {prompt.split()[-1].rstrip(':')}, and a reader asks for "
        "none: use a profile without mfa_serial, or set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY "
        "and AWS_SESSION_TOKEN to what aws sts get-session-token returns.",
        code="MfaRequired",
    )


def _profile_loader(session: Session) -> _Loader:
    resolver = _chain(session)
    for method in _BEHIND_PROFILE:
        resolver.remove(method)
    return resolver.load_credentials  # type: ignore[no-any-return]


def _role_loader(session: Session, aws: AwsConfig) -> _Loader:
    config = aws.credentials
    source = config.source or CredentialsConfig()
    of_source = build_session(AwsConfig(region=aws.region, credentials=source))
    hint = f"no credentials to assume {config.role_arn} with: {source.provider.value} found none"
    fetcher = AssumeRoleCredentialFetcher(
        _client_creator(session, config),
        _SourceCredentials(of_source, hint),
        str(config.role_arn),
        extra_args=_role_arguments(config),
    )
    return lambda: DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def _web_identity_loader(session: Session, config: CredentialsConfig) -> _Loader:
    # EKS sets these variables in a pod; Flink's connector falls back to them too.
    token_file = config.web_identity_token_file or os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE")
    role_arn = config.role_arn or os.environ.get("AWS_ROLE_ARN")
    for value, option, variable in (
        (token_file, CredentialsConfig.web_identity_token_file, "AWS_WEB_IDENTITY_TOKEN_FILE"),
        (role_arn, CredentialsConfig.role_arn, "AWS_ROLE_ARN"),
    ):
        if not value:
            raise MissingOptionError(
                f"WEB_IDENTITY_TOKEN needs {option.full_key}, or {variable} in the environment"
            )
    fetcher = AssumeRoleWithWebIdentityCredentialFetcher(
        _client_creator(session, config),
        FileWebIdentityTokenLoader(str(token_file)),
        str(role_arn),
        extra_args=_role_arguments(config),
    )
    return lambda: DeferredRefreshableCredentials(
        fetcher.fetch_credentials, "assume-role-with-web-identity"
    )


def _client_creator(session: Session, config: CredentialsConfig) -> Callable[..., Any]:
    return partial(session.create_client, endpoint_url=config.sts_endpoint_url)


def _role_arguments(config: CredentialsConfig) -> dict[str, str]:
    arguments = {"RoleSessionName": config.role_session_name, "ExternalId": config.role_external_id}
    return {name: value for name, value in arguments.items() if value}
