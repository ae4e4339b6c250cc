"""Credentials that are loaded at their first use, for botocore and for aiobotocore."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from attrs import define, field

from kinesis_publishers.errors import CredentialsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.credentials import ReadOnlyCredentials

__all__ = [
    "AioLoadingProvider",
    "AioSourceCredentials",
    "LoadingProvider",
    "SourceCredentials",
]


@define
class LoadingProvider:
    """A credential provider of botocore around a function."""

    METHOD: str
    _load: Callable[[], Any]
    CANONICAL_NAME: str | None = None

    def load(self) -> Any:
        """Return the credentials, None for none."""
        return self._load()


class AioLoadingProvider(LoadingProvider):
    """A credential provider of aiobotocore around a function, which may be a coroutine's."""

    async def load(self) -> Any:
        """Return the credentials, None for none."""
        return await _resolve(self._load())


@define
class SourceCredentials:
    """The credentials with which a role is assumed, for botocore."""

    _load: Callable[[], Any]
    _hint: str
    _loaded: Any = field(default=None, init=False, repr=False)

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return what signs the call to STS; raises CredentialsError if there is nothing."""
        if self._loaded is None:
            self._loaded = _require(self._load(), self._hint)
        return self._loaded.get_frozen_credentials()  # type: ignore[no-any-return]


class AioSourceCredentials(SourceCredentials):
    """The credentials with which a role is assumed, for aiobotocore."""

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:  # type: ignore[override]
        """Return what signs the call to STS; raises CredentialsError if there is nothing."""
        if self._loaded is None:
            self._loaded = _require(await _resolve(self._load()), self._hint)
        return await self._loaded.get_frozen_credentials()  # type: ignore[no-any-return]


async def _resolve(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _require(credentials: Any, hint: str) -> Any:
    if credentials is None:
        # Not one of botocore's, which would be one that may pass.
        raise CredentialsError(f"{hint}. Check aws.credentials.provider.role.provider.")
    return credentials
