"""Puts the flights into the stream, in a thread, while the query reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kinesis_publishers.config import ProducerConfig
from kinesis_publishers.errors import RecordsNotWrittenError
from kinesis_publishers.producing import BlockingProducer, PutResult

if TYPE_CHECKING:
    from kinesis_publishers_spark.demo.flights import FlightRecord

# What is counted together.
_PORTION_RECORDS: Final = 500
# The local Kinesis of the demo limits reading alone.
_PROPERTIES: Final = {ProducerConfig.rate_percent.full_key: 100_000}


class Loader:
    """Puts each record into a stream.

    Attributes:
        put: how many records Kinesis has accepted; any thread may ask.
    """

    def __init__(self, producer: BlockingProducer, records: Sequence[FlightRecord]) -> None:
        self._producer = producer
        self._records = records
        self.put = 0

    def run(self) -> None:
        """Put all records, and return when they are written.

        Raises:
            KinesisPublishersError: they were not.
        """
        for start in range(0, len(self._records), _PORTION_RECORDS):
            portion = self._records[start : start + _PORTION_RECORDS]
            results = self._producer.put_many([(one.data, one.partition_key) for one in portion])
            results.add_done_callback(self._count)
        self._producer.flush()

    def _count(self, results: Future[Sequence[PutResult]]) -> None:
        if results.exception() is None:
            self.put += len(results.result())


@contextmanager
def start_loader(
    properties: Mapping[str, str], records: Sequence[FlightRecord]
) -> Iterator[tuple[Loader, Future[None]]]:
    """Run a :class:`Loader` in a thread while the context lasts; the future has its end.

    Raises:
        KinesisPublishersError: the stream cannot be written to.
    """
    with (
        ThreadPoolExecutor(1, "loader") as executor,
        BlockingProducer.from_properties({**properties, **_PROPERTIES}) as producer,
    ):
        loader = Loader(producer, records)
        try:
            yield loader, executor.submit(loader.run)
        finally:
            # The future has what it says.
            with suppress(RecordsNotWrittenError):
                producer.close(timeout_seconds=0)
