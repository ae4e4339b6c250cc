"""Credentials from a class of the user's: ``aws.credentials.provider = CUSTOM``.

The class is called with the properties (a dict of keys and values, as written) and its ``load()``
returns an object with ``access_key``, ``secret_key`` and ``token``, as botocore's ``Credentials``.
They are read again for every request, so an object that renews itself keeps working.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiobotocore.credentials import AioCredentials
from botocore.credentials import Credentials, ReadOnlyCredentials

from kinesis_publishers.config.plugins import load_class
from kinesis_publishers.errors import PluginLoadError

if TYPE_CHECKING:
    from kinesis_publishers.config import CredentialsConfig

__all__ = ["load_custom", "load_custom_async"]


class _CustomCredentials(Credentials):
    def __init__(self, loaded: Any) -> None:
        access_key, secret_key, token, _ = _freeze(loaded)
        super().__init__(access_key or "", secret_key or "", token, method="custom")
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


def load_custom(config: CredentialsConfig) -> Credentials:
    """Return the credentials of the class in ``config`` for botocore.

    Raises:
        PluginLoadError: the class is missing or does not fit.
    """
    return _CustomCredentials(_call_class(config))


async def load_custom_async(config: CredentialsConfig) -> AioCredentials:
    """Return the credentials of the class in ``config`` for aiobotocore; see `load_custom`."""
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
