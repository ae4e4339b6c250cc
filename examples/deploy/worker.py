"""Process each record of a stream once among several workers, until SIGTERM.

    python worker.py FILE.properties

The file turns leases on, so that any number of these processes share the shards.
"""

from __future__ import annotations

import logging
import sys

from kinesis_publishers import Properties, records


def main(path: str) -> None:
    logging.basicConfig(level=logging.INFO)
    # SIGTERM ends the loop after the current record, with a checkpoint, and releases the leases.
    for record in records(Properties.from_file(path)):
        print(f"{record.partition_key}: {record.data!r}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
