"""Process each record of a stream once among several workers, until SIGTERM.

    DEAD_LETTER_STREAM=orders-letters python worker.py FILE.properties

The file turns leases on, so that any number of these processes share the shards. A record that is
no JSON, or that cannot be processed, goes to the other stream as it is.
"""

from __future__ import annotations

import logging
import os
import sys

from kinesis_publishers import DeadLetter, Properties, Record, scan


def process(record: Record) -> None:
    print(f"{record.partition_key}: {record.value!r}", flush=True)


def main(path: str) -> None:
    logging.basicConfig(level=logging.INFO)
    properties = Properties.from_file(path)
    letters = DeadLetter.to_stream(properties, stream=os.environ["DEAD_LETTER_STREAM"])
    # SIGTERM ends it after the current record, with a checkpoint, and releases the leases.
    scan(properties, process, decode="json", on_error=letters)


if __name__ == "__main__":
    main(sys.argv[1])
