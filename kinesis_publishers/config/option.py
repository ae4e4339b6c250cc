"""The declaration of options, and of the typed configs that have them as fields.

On the class of a config a field is its declaration; on an instance it is the configured value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Self,
    TypeVar,
    dataclass_transform,
    overload,
)

from attrs import Factory, evolve, field, fields_dict, frozen

from kinesis_publishers.config.parsers import Choice, Duration, Flag, Parser, Scalar, WholeNumber
from kinesis_publishers.errors import InvalidOptionError, MissingOptionError

T = TypeVar("T")
V = TypeVar("V")

MASK: Final = "***"
"""What stands for a secret in every message and ``repr``."""

_LONGEST_SHOWN: Final = 200
# A URL may have a password before its host, even with characters that should be escaped.
_URL_CREDENTIALS: Final = r"(?<=://)(?:[^/?#\s]*|[^\s'\"]*)@"


PREFIXES: Final = ("kinesis.", "flink.")
"""What every key begins with except those of AWS; the first one is documented."""


def show_value(value: object, *, secret: bool) -> str:
    """Return ``value`` for a message: masked if it is secret, and never long."""
    if secret:
        return MASK
    text = mask_urls(repr(value))
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def mask_urls(text: str) -> str:
    """Return ``text`` without the user names and passwords of its URLs."""
    return re.sub(_URL_CREDENTIALS, f"{MASK}@", text)


class Declared(Generic[V]):
    """Declares a field of a :class:`Section`, whose values are of type ``V``."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: Section, owner: type[Section], /) -> V: ...
        @overload
        def __get__(self, instance: object, owner: type, /) -> Self: ...
        def __get__(self, instance: object, owner: type, /) -> Any: ...
        def __set__(self, instance: Section, value: V, /) -> None: ...

    @property
    def options(self) -> tuple[Option[Any], ...]:
        return ()

    def read(self, lookup: Lookup) -> V:
        raise NotImplementedError


def _parser_of_default(option: Option[Any]) -> Parser[Any]:
    default = option.default
    if isinstance(default, bool):
        return Flag()
    if isinstance(default, Enum):
        return Choice(members=type(default))
    if isinstance(default, int):
        return WholeNumber(minimum=1)
    if isinstance(default, float):
        return Duration()
    raise TypeError(f"the option {option.key!r} needs a parser")


@frozen(kw_only=True)
class Option(Declared[T]):
    """One key.

    Attributes:
        key: the key after its prefix (``aws.`` keys have none), as it is documented.
        doc: what the option does, for the reference.
        default: None only for an ``Option[X | None]``.
        parser: also describes what is accepted, and the unit. The default has that of a bool, of a
            member of an enum, of a whole number of at least 1, or (a float) of a duration in ms.
        section: its part of the reference; empty for that of its class.
        secret: whether its value is masked wherever it might be shown.
        required: whether a complete configuration needs it.
        spellings: other keys that mean the same.
        guarded: a regex for values that run code, or use files, with the rights of this process;
            Spark users need the operator's permission for them.
    """

    key: str
    doc: str
    default: T = None  # type: ignore[assignment]
    parser: Parser[T] = field(default=Factory(_parser_of_default, takes_self=True))
    section: str = ""
    secret: bool = False
    required: bool = False
    spellings: tuple[str, ...] = ()
    guarded: str | None = None

    @property
    def full_key(self) -> str:
        """The key with its first prefix: how it is documented and written."""
        return self.key if self.key.startswith("aws.") else f"{PREFIXES[0]}{self.key}"

    @property
    def options(self) -> tuple[Option[Any], ...]:
        return (self,)

    @property
    def unit(self) -> str | None:
        """The unit of the value and of a number without one: ``ms``, ``s``, ``bytes`` or None."""
        unit: str | None = getattr(self.parser, "unit", None)
        return unit

    @property
    def choices(self) -> tuple[str, ...]:
        """The accepted values, empty where there is no closed list."""
        return self.parser.choices if isinstance(self.parser, Choice) else ()

    def read(self, lookup: Lookup) -> T:
        """Return the value in ``lookup``; a duration is in seconds."""
        value: Any = lookup.get(self)
        is_in_milliseconds = self.unit == "ms" and value is not None
        read: T = value / 1000 if is_in_milliseconds else value
        return read

    def missing(self) -> MissingOptionError:
        """Return the error for a configuration that does not have this option."""
        return MissingOptionError(f"{self.full_key} is required: set it to {self.parser.accepts}")

    def parse(self, value: Scalar, *, written_key: str | None = None) -> T:
        """Return ``value`` parsed; an ``InvalidOptionError`` names the key as it was written."""
        if isinstance(value, str | int | float):
            try:
                return self.parser(value)
            except (ValueError, OverflowError):
                pass  # reported below, outside the handler: a traceback could show the secret
        shown = show_value(value, secret=self.secret)
        raise InvalidOptionError(
            f"{written_key or self.full_key}: got {shown}, expected {self.parser.accepts}"
        )


@frozen(kw_only=True)
class OptionFamily(Declared[Mapping[str, T]], Generic[T]):
    """Keys that differ in one part, as ``stream.efo.consumerarn.<stream>``.

    The key of ``member`` contains ``placeholder`` once, for what matches ``name_pattern``.
    """

    member: Option[T]
    placeholder: str
    name_pattern: str

    @property
    def options(self) -> tuple[Option[Any], ...]:
        return (self.member,)

    def read(self, lookup: Lookup) -> Mapping[str, T]:
        return lookup.members(self)

    def of(self, name: str) -> Option[T]:
        return evolve(self.member, key=self.member.key.replace(self.placeholder, name))

    def name_in(self, key: str) -> str | None:
        """Return the varying part of ``key`` (matched without regard to case), None if foreign."""
        before, _, after = self.member.key.partition(self.placeholder)
        pattern = f"{re.escape(before)}({self.name_pattern}){re.escape(after)}"
        match = re.fullmatch(pattern, key, re.IGNORECASE | re.ASCII)
        return match and match[1]


@frozen
class Derived(Declared[V]):
    """A field without its own key: ``make`` derives its value from other options."""

    make: Callable[[Lookup], V]

    def read(self, lookup: Lookup) -> V:
        return self.make(lookup)


@frozen(kw_only=True)
class Entry:
    """An option with its value; two with the same meaning are equal, however they were written."""

    value: Any = field(repr=False)
    raw: Scalar = field(eq=False, repr=False)
    written_key: str = field(eq=False)
    full_key: str
    secret: bool = field(eq=False)

    @property
    def shown(self) -> str:
        return show_value(self.raw, secret=self.secret)


@frozen
class Lookup:
    """A configuration, as sections and the rules between options read it."""

    _entries: Mapping[str, Entry] = field(factory=dict)
    # Keys with a refused value: given, but without a value.
    _refused: frozenset[str] = frozenset()

    def get(self, option: Option[T]) -> T:
        """Return the value of ``option`` in its own unit, its default if it was not given."""
        entry = self._entries.get(option.key)
        value: T = option.default if entry is None else entry.value
        return value

    def is_given(self, option: Option[Any]) -> bool:
        """Return whether the user wrote ``option``, with a good value or not."""
        return option.key in self._entries or option.key in self._refused

    def is_refused(self, option: Option[Any]) -> bool:
        """Return whether ``option`` was given a bad value: never, once parsing has succeeded."""
        return option.key in self._refused

    def written_key(self, option: Option[Any]) -> str:
        """Return the key of ``option`` as the user wrote it, the documented one if not given."""
        entry = self._entries.get(option.key)
        return option.full_key if entry is None else entry.written_key

    def given_keys(self, options: Iterable[Option[Any]]) -> tuple[str, ...]:
        """Return the keys of those ``options`` that are given, as the user wrote them."""
        # Each once: one key of another connector may set two of these.
        keys = (self.written_key(option) for option in options if self.is_given(option))
        return tuple(dict.fromkeys(keys))

    def members(self, family: OptionFamily[T]) -> dict[str, T]:
        """Return the values of a family of keys, by the part of the key that varies."""
        names = ((key, family.name_in(key)) for key in self._entries)
        return {name: self._entries[key].value for key, name in names if name is not None}

    def to_dict(self) -> dict[str, Scalar]:
        """Return a dict that ``Properties.parse`` turns into an equal object, secrets included."""
        return {entry.full_key: entry.raw for entry in self._entries.values()}


_NOTHING_GIVEN: Final = Lookup()


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Section:
    """Base of the typed configs, which are frozen attrs classes.

    A field is :class:`Declared`; a ``ClassVar`` is an option without a field. A field that the
    constructor does not receive has its default.
    """

    title: ClassVar[str]
    declarations: ClassVar[Mapping[str, Declared[Any]]]

    def __init_subclass__(cls, *, section: str) -> None:
        cls.title = section
        cls.declarations = {k: one for k, one in vars(cls).items() if isinstance(one, Declared)}
        for name, declared in cls.declarations.items():
            if not cls.__annotations__[name].startswith("ClassVar"):
                setattr(cls, name, _field_of(declared))
        frozen(cls, kw_only=True, slots=False)
        # attrs has removed the fields from the class.
        for name, declared in cls.declarations.items():
            setattr(cls, name, declared)

    @classmethod
    def options(cls) -> tuple[Option[Any], ...]:
        return tuple(one for declared in cls.declarations.values() for one in declared.options)

    @classmethod
    def from_properties(cls, properties: Lookup) -> Self:
        names = fields_dict(cls)  # type: ignore[arg-type]
        declared = ((name, one) for name, one in cls.declarations.items() if name in names)
        return cls(**{name: one.read(properties) for name, one in declared})


def _field_of(declared: Declared[Any]) -> Any:
    is_secret = any(option.secret for option in declared.options)
    return field(factory=lambda: declared.read(_NOTHING_GIVEN), repr=_mask if is_secret else True)


def _mask(value: object) -> str:
    return "None" if value is None else MASK


def accepted_text(option: Option[Any]) -> str:
    """Return what an option may be: its choices, or a description."""
    return ", ".join(option.choices) or option.parser.accepts


def value_text(value: object) -> str | None:
    """Return a parsed value as text, without its unit; ``None`` for an empty one."""
    if value is None or value == ():
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, int | float):
        return f"{value:.15g}"
    return str(value.value if isinstance(value, Enum) else value)
