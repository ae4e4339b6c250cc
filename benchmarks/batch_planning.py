"""What planning a batch of ``spark.read`` costs: calls per shard, and how long it takes.

``python -m benchmarks.batch_planning --output benchmarks/results/batch-planning.json`` writes the
figures as JSON and, next to it, a Markdown table. LocalKinesis runs in the same process with the
limits of AWS, and holds each answer back for as long as a call in the same region takes.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
import time
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.polling import environment, heading, numbers, publish
from kinesis_publishers import Properties, SystemClock
from kinesis_publishers.readers import Narrowing, plan_batch
from kinesis_publishers.testing.local_kinesis import Fault, LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long each shard has been silent when the batch is loaded; ``None`` never had a record.
_SILENCE = {
    "a record follows": 0.0,
    "silent for a minute": 60.0,
    "silent for half a day": 43_200.0,
    "without records": None,
}
_RECORDS_PER_SHARD = 1_000
_SPREAD_SECONDS = 600.0
_PUTS = 20


class _ShiftedClock(SystemClock):
    shift = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.shift)


def _put(server: LocalKinesis, count: int) -> None:
    server.put_many("orders", [(f"key-{number}", b"x" * 100) for number in range(count)])


@contextmanager
def _served(shards: int, silence: float | None, call_seconds: float) -> Iterator[LocalKinesis]:
    clock = _ShiftedClock()
    with LocalKinesis.in_thread(clock=clock) as server:
        clock.shift = -(silence or 0.0) - 2 * _SPREAD_SECONDS
        server.create_stream("orders", shards)
        for put in range(0 if silence is None else _PUTS):
            clock.shift = -(silence or 0.0) - _SPREAD_SECONDS * (1 - put / _PUTS)
            _put(server, shards * _RECORDS_PER_SHARD // _PUTS)
        clock.shift = 0.0
        server.add_fault(Fault("*", "delay", delay_seconds=call_seconds))
        yield server


def measure(shards: int, kind: str, call_seconds: float) -> dict[str, Any]:
    """Return the calls per shard and the seconds of a plan, at once and some seconds later."""
    result: dict[str, Any] = {"shards": shards, "kind": kind}
    with _served(shards, _SILENCE[kind], call_seconds) as server:
        loaded_at = SystemClock().now()
        if kind == "a record follows":
            time.sleep(0.01)
            _put(server, 100 * shards)
        properties = Properties.parse(server.properties("orders"))
        for when in ("at once", "later"):
            before, began = len(server.calls()), time.monotonic()
            asyncio.run(plan_batch(properties, loaded_at, Narrowing()))
            result[f"seconds {when}"] = time.monotonic() - began
            calls = [call for call in server.calls()[before:] if call.shard_id is not None]
            result["calls"] = len(calls) / shards
            time.sleep(3.0)
    return result


def markdown(result: dict[str, Any]) -> str:
    """Return the figures as a table."""
    held_back = f"{result['call_seconds'] * 1e3:.0f} ms"
    lines = [
        *heading("Planning a batch", result["command"], result["environment"]),
        f"{_RECORDS_PER_SHARD:,} records per shard, from TRIM_HORIZON to LATEST.",
        f"LocalKinesis holds each answer back for {held_back}.",
        "",
        "| shards | each is | calls per shard | seconds, right after load() | seconds, later |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['shards']} | {row['kind']} | {row['calls']:.1f} | {row['seconds at once']:.2f} "
        f"| {row['seconds later']:.2f} |"
        for row in result["rows"]
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=numbers, default=[2, 200])
    parser.add_argument("--call-millis", type=float, default=20.0)
    parser.add_argument("--output", type=Path, help="JSON; the table goes next to it as .md")
    arguments = parser.parse_args()
    call_seconds = arguments.call_millis / 1000
    result = {
        "command": f"python -m benchmarks.batch_planning {shlex.join(sys.argv[1:])}".strip(),
        "environment": environment(("aiobotocore", "aiohttp")),
        "call_seconds": call_seconds,
        "rows": [
            measure(shards, kind, call_seconds) for shards in arguments.shards for kind in _SILENCE
        ],
    }
    publish(markdown(result), result, arguments.output)


if __name__ == "__main__":
    main()
