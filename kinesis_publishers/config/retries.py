"""The options of retries: four for each operation, and one for all of them.

``delay = random[0, 1) * min(max, base * expconst ** attempt)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers.config.option import Declared, Lookup, Namespace, Option
from kinesis_publishers.config.parsers import DecimalNumber, Duration, WholeNumber

if TYPE_CHECKING:
    from kinesis_publishers.retry import RetryPolicy

_SECTION: Final = "Retries"
# Waiting does not repair a wrong endpoint or region.
_START_SECONDS: Final = 30.0

OUTAGE: Final = Option(
    key="retry.outagemillis",
    parser=Duration(),
    default=300_000.0,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="How long every call is retried, even after its maxretries. By default, calls to a "
    "service that has never answered fail after 30 seconds. With 0, only the maxretries apply, as "
    "in Flink.",
)


class RetryOptions(Declared["RetryPolicy"]):
    """The four options of the retries of one operation; the field is a ``RetryPolicy``."""

    def __init__(
        self,
        prefix: str,
        operation: str,
        *,
        retries: int,
        base: float,
        longest: float,
        namespace: Namespace = Namespace.SHARED,
        outlasts_outages: bool = True,
    ) -> None:
        """Declare the options of ``operation``; their keys begin with ``prefix``.

        ``base`` and ``longest`` are the default bounds of the first delay and of all, in ms;
        ``outlasts_outages`` says whether :data:`OUTAGE` applies.
        """

        def option(name: str, parser: Any, default: Any, doc: str) -> Option[Any]:
            return Option(
                key=f"{prefix}.{name}",
                parser=parser,
                default=default,
                namespace=namespace,
                section=_SECTION,
                doc=doc,
            )

        self._outlasts_outages = outlasts_outages
        self.max_retries: Option[int] = option(
            "maxretries",
            WholeNumber(),
            retries,
            f"How often {operation} is retried before it counts as failed. If it is set and "
            f"{OUTAGE.full_key} is not, it is the only limit.",
        )
        self.base: Option[float] = option(
            "backoff.base",
            Duration(),
            base,
            f"The upper bound of the first delay between {operation} calls.",
        )
        self.max: Option[float] = option(
            "backoff.max", Duration(), longest, f"The longest delay between {operation} calls."
        )
        self.exponent: Option[float] = option(
            "backoff.expconst",
            DecimalNumber(),
            1.5,
            f"The growth of the delay between {operation} calls with each attempt.",
        )

    @property
    def options(self) -> tuple[Option[Any], ...]:
        return (self.max_retries, self.base, self.max, self.exponent)

    def read(self, lookup: Lookup) -> RetryPolicy:
        """Return the policy of the four options, and of the one for all calls."""
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
