"""The declaration of an option: everything about one key, in one place.

The declarations themselves are in :mod:`kinesis_publishers.config.options`; reading values with
them is left to :class:`~kinesis_publishers.config.properties.Properties`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar

from attrs import evolve, frozen

from kinesis_publishers.config.parsers import Parser, Scalar, choices_of
from kinesis_publishers.errors import InvalidOptionError

__all__ = ["Namespace", "Option", "OptionFamily", "Lookup", "MASK", "show_value"]

T = TypeVar("T")

MASK: Final = "***"
"""What stands for a secret in every message and ``repr``."""

_LONGEST_SHOWN: Final = 200
# A URL may carry a password in front of its host.
_URL_CREDENTIALS: Final = re.compile(r"(?<=://)[^/?#\s]*@")


class Namespace(Enum):
    """The prefixes under which a key is accepted."""

    SHARED = ("kinesis.", "flink.")
    OURS = ("kinesis.",)
    AWS = ("",)


def show_value(value: object, *, secret: bool) -> str:
    """Return ``value`` for a message: masked if it is secret, and never long."""
    if secret:
        return MASK
    text = _URL_CREDENTIALS.sub(f"{MASK}@", repr(value))
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


@frozen(kw_only=True)
class Option(Generic[T]):
    """One key.

    Attributes:
        key: the key after its prefix (``aws.`` keys have none), as it is documented.
        parser: turns what the user wrote into the value; also says what is accepted, and the unit.
        default: the value where the user wrote nothing.
        doc: what the option does, as one line of the reference.
        section: the part of the reference in which it stands.
        namespace: the prefixes under which it is accepted.
        secret: whether its value is masked wherever it might be shown.
        required: whether a complete configuration needs it.
        implemented: False for an option that is declared but that nothing reads yet.
        spellings: other keys that mean the same.
        guarded: a regex that finds values which run code, or use files, with the rights of this
            process: as options of Spark they need the operator's permission.
    """

    key: str
    parser: Parser[T]
    default: T
    doc: str
    section: str
    namespace: Namespace = Namespace.SHARED
    secret: bool = False
    required: bool = False
    implemented: bool = True
    spellings: tuple[str, ...] = ()
    guarded: str | None = None

    @property
    def full_key(self) -> str:
        """The key with its first prefix: how it is documented and written."""
        return f"{self.namespace.value[0]}{self.key}"

    @property
    def unit(self) -> str | None:
        """The unit of the value and of a number without one: ``ms``, ``s``, ``bytes`` or None."""
        return self.parser.unit

    @property
    def choices(self) -> tuple[str, ...]:
        """The accepted values, empty where there is no closed list."""
        return choices_of(self.parser)

    def parse(self, value: Scalar, *, written_key: str | None = None) -> T:
        """Return ``value`` parsed.

        Raises:
            InvalidOptionError: names the key as written, what was given and what is expected.
        """
        if isinstance(value, str | int | float):
            try:
                return self.parser(value)
            except (ValueError, OverflowError):
                pass  # reported below, outside the handler: a traceback could show the secret
        raise self.invalid(value, written_key=written_key)

    def invalid(
        self, value: object, *, written_key: str | None = None, hint: str = ""
    ) -> InvalidOptionError:
        """Return the error that says that ``value`` is not accepted."""
        shown = show_value(value, secret=self.secret)
        more = f". {hint}" if hint else ""
        return InvalidOptionError(
            f"{written_key or self.full_key}: got {shown}, expected {self.parser.accepts}{more}"
        )


@frozen(kw_only=True)
class OptionFamily(Generic[T]):
    """Keys that differ in one part, as ``stream.efo.consumerarn.<stream>``.

    Attributes:
        member: the option of one member; its key contains ``placeholder`` once.
        placeholder: the part that varies, as it is documented.
        name_pattern: what the part may be.
    """

    member: Option[T]
    placeholder: str
    name_pattern: re.Pattern[str]

    def of(self, name: str) -> Option[T]:
        """Return the option for ``name``."""
        return evolve(self.member, key=self.member.key.replace(self.placeholder, name))

    def name_in(self, key: str) -> str | None:
        """Return the varying part of ``key`` (matched without regard to case), None if foreign."""
        before, _, after = self.member.key.partition(self.placeholder)
        lowered = key.lower()
        if not (lowered.startswith(before.lower()) and lowered.endswith(after.lower())):
            return None
        name = key[len(before) : len(key) - len(after)]
        return name if self.name_pattern.fullmatch(name) else None


class Lookup(Protocol):
    """What the rules between options need to know of a configuration."""

    def get(self, option: Option[T], /) -> T:
        """Return the value of ``option``, its default if it was not given."""

    def is_given(self, option: Option[Any], /) -> bool:
        """Return whether the user wrote the option, with a good value or not."""

    def is_refused(self, option: Option[Any], /) -> bool:
        """Return whether the option was given with a value that is not accepted."""

    def written_key(self, option: Option[Any], /) -> str:
        """Return the key as the user wrote it, the documented one if it was not given."""

    def members(self, family: OptionFamily[T], /) -> dict[str, T]:
        """Return the values of a family, by the part of the key that varies."""
