"""Makes a botocore or an aiobotocore session use the configured credentials.

The two libraries mirror each other: each class of botocore has an asynchronous twin with the same
constructor. So every provider is described once, over a kit of classes for either library.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import aiobotocore.credentials as aio
import botocore.credentials as sync
from aiobotocore.credentials import AioCredentials
from aiobotocore.session import AioSession
from attrs import define, field
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError
from botocore.session import Session, get_session
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


class _CustomCredentials(Credentials):
    def __init__(self, loaded: Any) -> None:
        frozen = _freeze(loaded)
        super().__init__(
            frozen.access_key or "", frozen.secret_key or "", frozen.token, method="custom"
        )
        self._loaded = loaded

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return _freeze(self._loaded)


class _AioCustomCredentials(AioCredentials):  # type: ignore[misc]
    def __init__(self, loaded: Any, frozen: ReadOnlyCredentials) -> None:
        super().__init__(frozen.access_key, frozen.secret_key, frozen.token, method="custom")
        self._loaded = loaded

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        # Renewing may call a service: not on the event loop.
        return await asyncio.to_thread(_freeze, self._loaded)


def _load_custom(config: CredentialsConfig) -> Credentials:
    return _CustomCredentials(_call_class(config))


async def _load_custom_async(config: CredentialsConfig) -> AioCredentials:
    loaded = await asyncio.to_thread(_call_class, config)
    return _AioCustomCredentials(loaded, await asyncio.to_thread(_freeze, loaded))


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
    # botocore's own refreshing credentials give three values that belong together only here.
    if isinstance(loaded, Credentials) and not isinstance(loaded, AioCredentials):
        return loaded.get_frozen_credentials()
    return ReadOnlyCredentials(loaded.access_key, loaded.secret_key, getattr(loaded, "token", None))


@define
class _LoadingProvider:
    METHOD: str
    _load: Callable[[], Any]
    CANONICAL_NAME: str | None = None

    def load(self) -> Any:
        return self._load()


class _AioLoadingProvider(_LoadingProvider):
    async def load(self) -> Any:
        return await _resolve(self._load())


@define
class _SourceCredentials:
    _load: Callable[[], Any]
    _hint: str
    _loaded: Any = field(default=None, init=False, repr=False)

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        if self._loaded is None:
            self._loaded = _require(self._load(), self._hint)
        return self._loaded.get_frozen_credentials()  # type: ignore[no-any-return]


class _AioSourceCredentials(_SourceCredentials):
    async def get_frozen_credentials(self) -> ReadOnlyCredentials:  # type: ignore[override]
        if self._loaded is None:
            self._loaded = _require(await _resolve(self._load()), self._hint)
        return await self._loaded.get_frozen_credentials()  # type: ignore[no-any-return]


async def _resolve(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _require(credentials: Any, hint: str) -> Any:
    if credentials is None:
        # Not one of botocore's errors, which count as temporary.
        raise CredentialsError(f"{hint}. Check aws.credentials.provider.role.provider.")
    return credentials


_SessionT = TypeVar("_SessionT", Session, AioSession)
# Returns credentials (botocore) or a coroutine that does (aiobotocore).
_Loader: TypeAlias = Callable[[], Any]

# What follows the profile in botocore's chain: PROFILE must not fall through to it.
_BEHIND_PROFILE: Final = ("ec2-credentials-file", "boto-config", "container-role", "iam-role")


# The classes of either library, by the names that they have below.
_SYNC: Final = SimpleNamespace(
    session=Session,
    create_resolver=sync.create_credential_resolver,
    resolver=sync.CredentialResolver,
    provider=_LoadingProvider,
    environment=sync.EnvProvider,
    static_credentials=sync.Credentials,
    deferred_credentials=sync.DeferredRefreshableCredentials,
    source_credentials=_SourceCredentials,
    role_fetcher=sync.AssumeRoleCredentialFetcher,
    web_identity_fetcher=sync.AssumeRoleWithWebIdentityCredentialFetcher,
    load_custom=_load_custom,
)
_AIO: Final = SimpleNamespace(
    session=AioSession,
    create_resolver=aio.create_credential_resolver,
    resolver=aio.AioCredentialResolver,
    provider=_AioLoadingProvider,
    environment=aio.AioEnvProvider,
    static_credentials=aio.AioCredentials,
    deferred_credentials=aio.AioDeferredRefreshableCredentials,
    source_credentials=_AioSourceCredentials,
    role_fetcher=aio.AioAssumeRoleCredentialFetcher,
    web_identity_fetcher=aio.AioAssumeRoleWithWebIdentityCredentialFetcher,
    load_custom=_load_custom_async,
)


def build_session(session: _SessionT, config: AwsConfig) -> _SessionT:
    """Make a new ``session`` use the region and the credentials of ``config``, and return it.

    Roles are assumed when a client first signs a request, and again before their credentials
    expire. STS is called in the region of ``config``, which must be resolved.

    Raises:
        PluginLoadError: the class of CUSTOM cannot be loaded.
        MissingOptionError: WEB_IDENTITY_TOKEN lacks its role or its token file.
    """
    kit = _AIO if isinstance(session, AioSession) else _SYNC
    if config.region:
        session.set_config_variable("region", config.region)
    credentials = config.credentials
    if credentials.provider is CredentialsProvider.AUTO:
        session.register_component("credential_provider", _chain(kit, session))
        return session
    watch_signatures(session)
    if credentials.provider is CredentialsProvider.PROFILE:
        _select_profile(session, credentials)  # its region counts too
    load = _loader(kit, session, credentials)
    name = f"kinesis-publishers-{credentials.provider.value.lower()}"
    session.register_component("credential_provider", kit.resolver([kit.provider(name, load)]))
    return session


def region_of_machine(config: AwsConfig) -> str | None:
    """Return the environment's or the profile's region; ``ConfigError`` if it cannot be read."""
    # The SDKs of other languages, Lambda and ECS use the first; botocore knows only the second.
    region = os.environ.get("AWS_REGION")
    try:
        # With the provider PROFILE it is the region of that profile.
        session = build_session(get_session(), config)
        return region or session.get_config_variable("region")
    except BotoCoreError as error:
        raise ConfigError(f"The AWS configuration of this machine: {error}") from error


def _loader(kit: SimpleNamespace, session: Any, config: CredentialsConfig) -> _Loader:
    """Return what loads the credentials of ``config``; ``session`` makes the clients for STS."""
    match config.provider:
        case CredentialsProvider.AUTO:
            return _chain(kit, kit.session()).load_credentials  # type: ignore[no-any-return]
        case CredentialsProvider.BASIC:
            return lambda: kit.static_credentials(
                config.access_key_id, config.secret_key, config.session_token, method="basic"
            )
        case CredentialsProvider.ENV_VAR:
            return kit.environment().load  # type: ignore[no-any-return]
        case CredentialsProvider.PROFILE:
            return _profile_loader(kit, config)
        case CredentialsProvider.ASSUME_ROLE:
            return _role_loader(kit, session, config)
        case CredentialsProvider.WEB_IDENTITY_TOKEN:
            return _web_identity_loader(kit, session, config)
        case CredentialsProvider.CUSTOM:
            return functools.partial(kit.load_custom, config)


def _chain(kit: SimpleNamespace, session: Any) -> Any:
    """Return botocore's chain of providers, without prompts on a terminal."""
    watch_signatures(session)
    resolver = kit.create_resolver(session)
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


def _select_profile(session: Any, config: CredentialsConfig) -> None:
    session.set_config_variable("profile", config.profile_name or "default")
    if config.profile_path:
        session.set_config_variable("credentials_file", os.path.expanduser(config.profile_path))


def _profile_loader(kit: SimpleNamespace, config: CredentialsConfig) -> _Loader:
    session = kit.session()
    _select_profile(session, config)
    resolver = _chain(kit, session)
    for method in _BEHIND_PROFILE:
        resolver.remove(method)
    return resolver.load_credentials  # type: ignore[no-any-return]


def _role_loader(kit: SimpleNamespace, session: Any, config: CredentialsConfig) -> _Loader:
    source = config.source or CredentialsConfig()
    hint = f"no credentials to assume {config.role_arn} with: {source.provider.value} found none"
    fetcher = kit.role_fetcher(
        _client_creator(session, config),
        kit.source_credentials(_loader(kit, session, source), hint),
        config.role_arn,
        extra_args=_role_arguments(config),
    )
    return lambda: kit.deferred_credentials(fetcher.fetch_credentials, "assume-role")


def _web_identity_loader(kit: SimpleNamespace, session: Any, config: CredentialsConfig) -> _Loader:
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
    fetcher = kit.web_identity_fetcher(
        _client_creator(session, config),
        FileWebIdentityTokenLoader(str(token_file)),
        role_arn,
        extra_args=_role_arguments(config),
    )
    return lambda: kit.deferred_credentials(
        fetcher.fetch_credentials, "assume-role-with-web-identity"
    )


def _client_creator(session: Any, config: CredentialsConfig) -> Callable[..., Any]:
    return functools.partial(session.create_client, endpoint_url=config.sts_endpoint_url)


def _role_arguments(config: CredentialsConfig) -> dict[str, str]:
    arguments = {"RoleSessionName": config.role_session_name, "ExternalId": config.role_external_id}
    return {name: value for name, value in arguments.items() if value}
