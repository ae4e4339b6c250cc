"""The local Kinesis of the demo, in a process of its own, so that it does not slow Spark down."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from kinesis_publishers_spark.demo import DemoError


@contextmanager
def serve_stream(stream: str, shards: int) -> Iterator[dict[str, str]]:
    """Run a server with one stream while the context lasts; yield the properties that read it."""
    with subprocess.Popen(
        # -P: nothing in the working directory may take the place of a module.
        [sys.executable, "-P", "-m", __name__, stream, str(shards)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        # Ctrl-C reaches every process of the terminal's group; this one is ended in order.
        process_group=0,
    ) as process:
        try:
            assert process.stdout is not None
            properties = process.stdout.readline()
            if not properties:
                raise DemoError("The local Kinesis server did not start.")
            # A server on this machine that is gone does not come back.
            yield {**orjson.loads(properties), "kinesis.retry.outagemillis": "30000"}
        finally:
            # It has nothing to save.
            process.kill()


if __name__ == "__main__":
    from kinesis_publishers.testing import Limits, LocalKinesis

    with LocalKinesis.in_thread(Limits.aws()) as server:
        server.create_stream(sys.argv[1], int(sys.argv[2]))
        sys.stdout.buffer.write(orjson.dumps(server.properties(sys.argv[1])) + b"\n")
        sys.stdout.flush()
        # Nothing is ever sent: reading ends when the process at the other end does.
        sys.stdin.read()
