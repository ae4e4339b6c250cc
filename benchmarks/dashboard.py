"""Lets Prometheus watch readers that have trouble, and asks it what the dashboard for Grafana asks.

``python -m benchmarks.dashboard`` needs the program ``prometheus``. It writes
``benchmarks/results/dashboard.json``, of which ``python -m docs.pictures`` draws the panels, and
fails if a query has no answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

from kinesis_publishers import KinesisDataFetcher
from kinesis_publishers.testing.local_kinesis import Fault, LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ROOT: Final = Path(__file__).parents[1]
_DASHBOARD: Final = _ROOT / "examples" / "monitoring" / "grafana-dashboard.json"
_OUTPUT: Final = _ROOT / "benchmarks" / "results" / "dashboard.json"
_SCRAPE_SECONDS: Final = 5
# What Grafana makes of $__rate_interval: four scrapes.
_RATE_INTERVAL: Final = f"{4 * _SCRAPE_SECONDS}s"


async def work(server: LocalKinesis, port: int, seconds: float) -> None:
    """Write and read for a while: one reader polls and stops, one is pushed to, one fails."""
    server.create_stream("orders", 2)
    server.create_stream("clicks", 1)
    began = time.monotonic()

    def share() -> float:
        return (time.monotonic() - began) / seconds

    tasks = [
        asyncio.create_task(_write(server, share)),
        asyncio.create_task(_read(server, port, share, seconds)),
        asyncio.create_task(_read_pushed(server, port)),
        asyncio.create_task(_fail_again_and_again(server, port, seconds / 6)),
        asyncio.create_task(_refuse_calls(server, seconds / 5)),
    ]
    done, pending = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        task.result()


def _properties(server: LocalKinesis, stream: str, port: int) -> dict[str, str]:
    return server.properties(stream) | {
        "kinesis.metrics.sinks": "prometheus",
        "kinesis.metrics.prometheus.port": str(port),
        "kinesis.pending.maxrecords": "20000",
        # A backlog takes a while, as over a network.
        "kinesis.shard.getrecords.maxrecordcount": "300",
    }


async def _write(server: LocalKinesis, share: Callable[[], float]) -> None:
    number = 0
    while True:
        count = round(150 * (2 + math.sin(8 * share())))
        records = [(f"key{number + one}", bytes(700)) for one in range(count)]
        await asyncio.to_thread(server.put_many, "orders", records)
        await asyncio.to_thread(server.put_many, "clicks", records[: count // 4])
        number += count
        await asyncio.sleep(0.5)


async def _read(
    server: LocalKinesis, port: int, share: Callable[[], float], seconds: float
) -> None:
    async def on_batch(shard: object, batch: Any) -> None:
        await asyncio.sleep(len(batch) / 5_000)
        if 0.4 < share() < 0.5:  # for instance a database that is down
            await asyncio.sleep(0.2 * seconds)

    async with KinesisDataFetcher.from_properties(
        _properties(server, "orders", port), on_batch
    ) as fetcher:
        await fetcher.run()


async def _read_pushed(server: LocalKinesis, port: int) -> None:
    async def on_batch(shard: object, batch: Any) -> None:
        await asyncio.sleep(len(batch) / 20_000)

    properties = _properties(server, "clicks", port) | {
        "kinesis.stream.recordpublisher": "EFO",
        "kinesis.stream.efo.consumername": "dashboard",
    }
    async with KinesisDataFetcher.from_properties(properties, on_batch) as fetcher:
        await fetcher.run()


async def _fail_again_and_again(server: LocalKinesis, port: int, seconds: float) -> None:
    async def on_batch(shard: object, batch: Any) -> None:
        raise ValueError("a record that the application cannot take")

    while True:
        await asyncio.sleep(seconds)
        try:
            async with KinesisDataFetcher.from_properties(
                _properties(server, "orders", port), on_batch
            ) as fetcher:
                await fetcher.run()
        except ValueError:
            pass


async def _refuse_calls(server: LocalKinesis, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        server.add_fault(Fault("GetRecords", "throttle", stream="orders", times=12))
        server.add_fault(Fault("GetRecords", "internal_failure", stream="orders", times=6))


@contextmanager
def prometheus(program: str, port: int) -> Iterator[str]:
    """Run Prometheus, which scrapes ``port``, and yield its URL."""
    own = _free_port()
    with TemporaryDirectory() as directory:
        config = Path(directory) / "prometheus.yml"
        config.write_text(
            f"global: {{scrape_interval: {_SCRAPE_SECONDS}s}}\n"
            "scrape_configs:\n  - job_name: readers\n    static_configs:\n"
            f"      - targets: ['127.0.0.1:{port}']\n"
        )
        with subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address=127.0.0.1:{own}",
                "--log.level=error",
            ]
        ) as process:
            try:
                yield f"http://127.0.0.1:{own}"
            finally:
                process.terminate()


def ask(url: str, begin: float, end: float) -> dict[str, Any]:
    """Return what Prometheus answers to each query of the dashboard."""
    dashboard = json.loads(_DASHBOARD.read_text(encoding="utf-8"))
    (stream,) = [one for one in dashboard["templating"]["list"] if one["name"] == "stream"]
    label = re.fullmatch(r"label_values\((.+), (\w+)\)", stream["query"])
    assert label is not None
    streams = _get(f"{url}/api/v1/label/{label[2]}/values", **{"match[]": label[1]})
    answers = {}
    for target in (one for panel in dashboard["panels"] for one in panel["targets"]):
        query = target["expr"].replace("$stream", "|".join(streams))
        found = _get(
            f"{url}/api/v1/query_range",
            query=query.replace("$__rate_interval", _RATE_INTERVAL),
            start=begin,
            end=end,
            step=_SCRAPE_SECONDS,
        )["result"]
        answers[target["expr"]] = [_series(one, begin) for one in found]
    return {"streams": streams, "seconds": round(end - begin), "answers": answers}


def _series(found: dict[str, Any], begin: float) -> dict[str, Any]:
    points = [[round(at - begin), float(f"{float(value):.4g}")] for at, value in found["values"]]
    return {"labels": found["metric"], "points": [one for one in points if one[1] == one[1]]}


def _get(address: str, **parameters: object) -> Any:
    with urlopen(f"{address}?{urlencode(parameters)}", timeout=30) as answer:
        return json.load(answer)["data"]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> None:
    """Work, ask, and store the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--prometheus", default="prometheus", help="the program")
    arguments = parser.parse_args()
    port = _free_port()
    with LocalKinesis.in_thread() as server, prometheus(arguments.prometheus, port) as url:
        begin = time.time()
        asyncio.run(work(server, port, 60 * arguments.minutes))
        answers = ask(url, begin, time.time() - _SCRAPE_SECONDS)
    answers = {
        "command": f"python -m benchmarks.dashboard --minutes {arguments.minutes:g}",
        "prometheus": _version(arguments.prometheus),
        **answers,
    }
    _OUTPUT.write_text(json.dumps(answers, separators=(",", ":")) + "\n", encoding="utf-8")
    silent = [
        query
        for query, series in answers["answers"].items()
        if not any(one["points"] for one in series)
    ]
    if silent:
        sys.exit("\n".join(["without an answer:", *silent]))


def _version(program: str) -> str:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return (answer.stdout or answer.stderr).split()[2]


if __name__ == "__main__":
    main()
