"""The errors that a user declares recoverable, by AWS error code or Python exception."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import frozen

from kinesis_publishers.config.option import Lookup, Option, OptionFamily
from kinesis_publishers.config.parsers import Text
from kinesis_publishers.config.plugins import load_class
from kinesis_publishers.errors import InvalidOptionError, PluginLoadError, ServiceError

RECOVERABLE_ERRORS: Final[OptionFamily[str | None]] = OptionFamily(
    member=Option(
        key="shard.consumer.error.recoverable[i].exception",
        parser=Text(
            accepts="the dotted name of an exception class, or an AWS error code",
            pattern=r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)*",
        ),
        guarded=r"^(?!kinesis_publishers\.errors\.\w+$).*\.",
        section="Retries",
        doc="An error after which reading a shard is retried without a limit, in addition to the "
        "built-in ones. i counts from 0 without gaps; all errors apply.",
    ),
    placeholder="[i]",
    name_pattern=r"\[[0-9]{1,4}\]",
)


@frozen(kw_only=True)
class RecoverableErrors:
    """Errors after which a call is retried without a limit: AWS's codes, and exceptions."""

    codes: frozenset[str] = frozenset()
    types: tuple[type[Exception], ...] = ()

    @classmethod
    def parse(cls, names: Iterable[str | None]) -> RecoverableErrors:
        """Resolve ``names``: a dotted name is an exception, any other is an error code.

        Raises:
            InvalidOptionError: a dotted name cannot be imported, or is not an exception.
        """
        found = {name: _load(name) if "." in name else _builtin(name) for name in names if name}
        return cls(
            codes=frozenset(name for name, exception in found.items() if exception is None),
            types=tuple(filter(None, found.values())),
        )

    def contain(self, error: BaseException) -> bool:
        """Return whether ``error`` or one of its causes is recoverable."""
        return any(
            isinstance(one, self.types)
            or (isinstance(one, ServiceError) and one.code in self.codes)
            for one in causes(error)
        )


def recoverable_errors(lookup: Lookup) -> RecoverableErrors:
    """Return the errors of a configuration; see :meth:`RecoverableErrors.parse`."""
    return RecoverableErrors.parse(lookup.members(RECOVERABLE_ERRORS).values())


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error``, its cause, the cause of that, and so on, each once.

    Only explicit causes (``raise ... from``) count: an error that occurred while another one was
    handled may be unrelated.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _load(name: str) -> type[Exception]:
    module, _, attribute = name.rpartition(".")
    try:
        return load_class(f"{module}:{attribute}", Exception)
    except PluginLoadError as error:
        raise InvalidOptionError(
            f"{name!r} among the recoverable errors is not a Python exception here: {error}. Name "
            "a Python exception with its module, or an AWS error code"
        ) from error


def _builtin(name: str) -> type[Exception] | None:
    found = getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None
