"""Puts the flights into the stream, in a thread, while the query reads them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from kinesis_publishers_spark.demo.flights import FlightRecord

# The most that PutRecords takes (API reference); the flights are far from its limit on bytes.
_RECORDS_PER_CALL: Final = 500
# How long a call with refused records waits at first, and at most.
_FIRST_PAUSE_SECONDS: Final = 0.1
_LAST_PAUSE_SECONDS: Final = 2.0


class Loader:
    """Puts each record into a stream, once.

    Args:
        client: a boto3 client of Kinesis that does not retry by itself.
        records: what to put, in this order where nothing is refused.

    Attributes:
        put: how many records Kinesis has accepted; any thread may ask.
    """

    def __init__(self, client: Any, stream: str, records: Sequence[FlightRecord]) -> None:
        self._client = client
        self._stream = stream
        self._records = records
        self._stopping = threading.Event()
        self.put = 0

    def run(self) -> None:
        """Put all records; return early after :meth:`stop`."""
        for start in range(0, len(self._records), _RECORDS_PER_CALL):
            self._put_all(
                [
                    {"Data": record.data, "PartitionKey": record.partition_key}
                    for record in self._records[start : start + _RECORDS_PER_CALL]
                ]
            )

    def stop(self) -> None:
        """Make :meth:`run` return after the call in flight."""
        self._stopping.set()

    def _put_all(self, entries: list[dict[str, Any]]) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while entries and not self._stopping.is_set():
            answer = self._client.put_records(StreamName=self._stream, Records=entries)
            # PutRecords succeeds also when single entries are refused: those are put again.
            refused = [
                entry
                for entry, result in zip(entries, answer["Records"], strict=True)
                if "ErrorCode" in result
            ]
            self.put += len(entries) - len(refused)
            entries = refused
            if entries:
                self._stopping.wait(pause)
                pause = min(2 * pause, _LAST_PAUSE_SECONDS)


@contextmanager
def start_loader(
    properties: Mapping[str, str], stream: str, records: Sequence[FlightRecord]
) -> Iterator[tuple[Loader, Future[None]]]:
    """Run a :class:`Loader` in a thread while the context lasts; the future has its end."""
    with closing(_open_client(properties)) as client, ThreadPoolExecutor(1, "loader") as executor:
        loader = Loader(client, stream, records)
        try:
            yield loader, executor.submit(loader.run)
        finally:
            loader.stop()


def _open_client(properties: Mapping[str, str]) -> Any:
    """Return a boto3 client for the service that ``properties`` read from."""
    return boto3.client(
        "kinesis",
        region_name=properties["aws.region"],
        endpoint_url=properties["aws.endpoint"],
        aws_access_key_id=properties["aws.credentials.provider.basic.accesskeyid"],
        aws_secret_access_key=properties["aws.credentials.provider.basic.secretkey"],
        # A call whose answer was lost may have stored its records: repeating it would put them
        # twice, and the demo would report them. Checking each entry against the model of the API
        # takes longer than everything else that a call does.
        config=Config(retries={"total_max_attempts": 1}, parameter_validation=False),
    )
