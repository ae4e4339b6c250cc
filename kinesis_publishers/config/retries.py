"""The options of retries: four for each operation, one for all of them, and recoverable errors."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from kinesis_publishers.config.option import Declared, Lookup, Option, OptionFamily
from kinesis_publishers.config.parsers import DecimalNumber, Duration, Text, WholeNumber
from kinesis_publishers.config.plugins import load_class
from kinesis_publishers.errors import InvalidOptionError, PluginLoadError, ServiceError

if TYPE_CHECKING:
    from kinesis_publishers.retry import RetryPolicy

_SECTION: Final = "Retries"
# Waiting does not repair a wrong endpoint or region.
_START_SECONDS: Final = 30.0

OUTAGE: Final = Option(
    key="retry.outagemillis",
    default=300_000.0,
    section=_SECTION,
    doc="How long every call is retried, even after its maxretries. By default, calls to a "
    "service that has never answered fail after 30 seconds. With 0, only the maxretries apply, as "
    "in Flink.",
)
RECOVERABLE_ERRORS: Final[OptionFamily[str | None]] = OptionFamily(
    member=Option(
        key="shard.consumer.error.recoverable[i].exception",
        parser=Text(
            accepts="the dotted name of an exception class, or an AWS error code",
            pattern=r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)*",
        ),
        guarded=r"^(?!kinesis_publishers\.errors\.\w+$).*\.",
        section=_SECTION,
        doc="An error after which reading a shard is retried without a limit, in addition to the "
        "built-in ones. i numbers the errors, which all apply.",
    ),
    placeholder="[i]",
    name_pattern=r"\[[0-9]{1,4}\]",
)


class RetryOptions(Declared["RetryPolicy"]):
    """The four options of the retries of one operation; the field is a ``RetryPolicy``."""

    def __init__(
        self,
        prefix: str,
        operation: str,
        *,
        retries: int,
        delays: tuple[float, float],
        outlasts_outages: bool = True,
    ) -> None:
        """Declare the options of ``operation``; their keys begin with ``prefix``.

        ``delays`` are the default bounds of the first delay and of all, in ms;
        ``outlasts_outages`` says whether :data:`OUTAGE` applies.
        """

        def option(name: str, parser: Any, default: Any, doc: str) -> Option[Any]:
            key = f"{prefix}.{name}"
            return Option(key=key, parser=parser, default=default, doc=doc, section=_SECTION)

        self._outlasts_outages = outlasts_outages
        self.max_retries: Option[int] = option(
            "maxretries",
            WholeNumber(),
            retries,
            f"How often {operation} is retried before it counts as failed. If it is set and "
            f"{OUTAGE.full_key} is not, it is the only limit.",
        )
        delay = f"delay before {operation} is retried"
        self.base: Option[float] = option(
            "backoff.base", Duration(), delays[0], f"The upper bound of the first {delay}."
        )
        self.max: Option[float] = option(
            "backoff.max", Duration(), delays[1], f"The longest {delay}."
        )
        self.exponent: Option[float] = option(
            "backoff.expconst", DecimalNumber(), 1.5, f"The growth of the {delay}, per attempt."
        )

    @property
    def options(self) -> tuple[Option[Any], ...]:
        return (self.max_retries, self.base, self.max, self.exponent)

    def read(self, lookup: Lookup) -> RetryPolicy:
        # Imported here: it needs asyncio, which a configuration alone does not.
        from kinesis_publishers.retry import RetryPolicy

        has_outage = lookup.is_given(OUTAGE)
        # The number alone, as users of Flink set it, is the only limit.
        is_counted = lookup.is_given(self.max_retries) and not has_outage
        outlasts_outages = self._outlasts_outages and not is_counted
        return RetryPolicy(
            max_retries=self.max_retries.read(lookup),
            base_seconds=self.base.read(lookup),
            max_seconds=self.max.read(lookup),
            exponent=self.exponent.read(lookup),
            outage_seconds=OUTAGE.read(lookup) if outlasts_outages else 0.0,
            start_seconds=None if is_counted or has_outage else _START_SECONDS,
            option=self.max_retries.full_key,
        )


@frozen(kw_only=True)
class RecoverableErrors:
    """Errors after which a call is retried without a limit: AWS's codes, and exceptions."""

    codes: frozenset[str] = frozenset()
    types: tuple[type[Exception], ...] = ()

    @classmethod
    def parse(cls, names: Iterable[str | None]) -> RecoverableErrors:
        """Resolve ``names``: a dotted name must be an exception, any other is an error code."""
        found = {name: _load(name) if "." in name else _builtin(name) for name in names if name}
        return cls(
            codes=frozenset(name for name, exception in found.items() if exception is None),
            types=tuple(filter(None, found.values())),
        )

    @classmethod
    def read(cls, lookup: Lookup) -> RecoverableErrors:
        return cls.parse(lookup.members(RECOVERABLE_ERRORS).values())

    def contain(self, error: BaseException) -> bool:
        """Return whether ``error`` or one of its causes is recoverable."""
        return any(
            isinstance(one, self.types)
            or (isinstance(one, ServiceError) and one.code in self.codes)
            for one in causes(error)
        )


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
