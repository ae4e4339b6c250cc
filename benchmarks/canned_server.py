"""A Kinesis endpoint that answers at memory speed, so that the client is what is measured.

Run it as ``python -m benchmarks.canned_server``: it prints its URL and serves until its standard
input ends. What a stream holds is said by its name, see :class:`benchmarks.canned_pages.Workload`.
"""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import cbor2

from benchmarks.canned_pages import (
    CannedPage,
    Timeline,
    Workload,
    cbor_text,
    page_of,
    place_of,
    sequence_number,
)
from kinesis_publishers.testing.local_kinesis.dispatch import CBOR, json_of_cbor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

__all__ = [
    "STREAM_ARN",
    "Connection",
    "Server",
    "cpu_seconds",
    "release",
    "running_server",
    "served",
]

#: A stream has this ARN with its name at the end.
STREAM_ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/"
_CREATED = 1_759_999_000.0
_ITERATOR_WIDTH = 224  # as long as AWS's own
_LARGEST_HASH_KEY = 2**128 - 1


class _Refused(Exception):
    """An answer with status 400; the arguments are AWS's error code and a message."""


class CannedService:
    """Answers the calls of a reader; thread-safe."""

    def __init__(self) -> None:
        self._pages: dict[tuple[Workload, int, bool], CannedPage] = {}
        self._locks: dict[tuple[Workload, int, bool], threading.Lock] = {}
        self._lock = threading.Lock()
        self.timeline = Timeline()
        self.calls: Counter[str] = Counter()
        # Of answers to GetRecords. Two threads may lose one of some thousand additions.
        self.sent_bytes = 0
        # The shards whose ends have been read: from then on they are listed as closed.
        self.ended: set[tuple[Workload, int]] = set()

    def answer(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to any call but GetRecords.

        Raises:
            _Refused: the operation, the stream or a parameter is not known here.
        """
        handler = getattr(self, f"_{operation}", None)
        if handler is None:
            raise _Refused("UnknownOperationException", operation)
        answer: dict[str, Any] = handler(_workload(request), request)
        return answer

    @contextmanager
    def page(
        self,
        shard: int,
        number: int,
        workload: Workload,
        places: range | None = None,
        *,
        is_cbor: bool = False,
    ) -> Iterator[memoryview]:
        """Lend the text of one page of records, or of those of its ``places``."""
        key = (workload, shard, is_cbor)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._pages:
                self._pages[key] = CannedPage(workload, shard, is_cbor=is_cbor)
            millis = self.timeline.arrival_millis(workload, number)
            yield self._pages[key].text(number, millis, places or range(workload.page_records))

    def _DescribeStreamSummary(
        self, workload: Workload, _request: dict[str, Any]
    ) -> dict[str, Any]:
        summary = _description(workload) | {"OpenShardCount": workload.shards, "ConsumerCount": 0}
        return {"StreamDescriptionSummary": summary}

    def _DescribeStream(self, workload: Workload, _request: dict[str, Any]) -> dict[str, Any]:
        shards = {"Shards": self._shards(workload), "HasMoreShards": False}
        return {"StreamDescription": _description(workload) | shards}

    def _ListShards(self, workload: Workload, _request: dict[str, Any]) -> dict[str, Any]:
        return {"Shards": self._shards(workload)}

    def _shards(self, workload: Workload) -> list[dict[str, Any]]:
        width = _LARGEST_HASH_KEY // workload.shards
        shards = []
        for shard in range(workload.shards):
            numbers = {"StartingSequenceNumber": sequence_number(shard, 0, 0)}
            if (workload, shard) in self.ended:
                pages = self.timeline.pages(workload, shard)
                numbers["EndingSequenceNumber"] = sequence_number(shard, pages, 0)
            hashes = {
                "StartingHashKey": str(width * shard),
                "EndingHashKey": str(width * (shard + 1) - 1),
            }
            shards.append(
                {
                    "ShardId": f"shardId-{shard:012d}",
                    "HashKeyRange": hashes,
                    "SequenceNumberRange": numbers,
                }
            )
        return shards

    def _GetShardIterator(self, workload: Workload, request: dict[str, Any]) -> dict[str, Any]:
        shard = int(request["ShardId"].rpartition("-")[2])
        page = place = 0
        match request["ShardIteratorType"]:
            case "TRIM_HORIZON":
                pass
            case "AT_TIMESTAMP":
                page, place = self.timeline.place_since(workload, request["Timestamp"] * 1000)
            case "LATEST":
                page = self.timeline.pages(workload, shard)
            case kind:
                number = request["StartingSequenceNumber"]
                page, place = page_of(number), place_of(number) + (kind != "AT_SEQUENCE_NUMBER")
        return {"ShardIterator": _iterator(workload, shard, page, place)}


def _workload(request: dict[str, Any]) -> Workload:
    name = request.get("StreamName") or request.get("StreamARN", "").rpartition("/")[2]
    workload = Workload.parse(name)
    if workload is None:
        raise _Refused("ResourceNotFoundException", f"no stream {name!r}")
    return workload


def _description(workload: Workload) -> dict[str, Any]:
    return {
        "StreamName": workload.name,
        "StreamARN": STREAM_ARN + workload.name,
        "StreamStatus": "ACTIVE",
        "StreamModeDetails": {"StreamMode": "PROVISIONED"},
        "RetentionPeriodHours": 8760,
        "StreamCreationTimestamp": _CREATED,
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
    }


def _iterator(workload: Workload, shard: int, page: int, place: int) -> str:
    page, place = page + place // workload.page_records, place % workload.page_records
    return f"{workload.name}/{shard}/{page}/{place}/".ljust(_ITERATOR_WIDTH, "A")


@cache
def accepted(count: int, is_cbor: bool) -> bytes:
    """Return the answer to PutRecords that accepts all records, in the first shard."""
    entry = {"SequenceNumber": sequence_number(0, 0, 0), "ShardId": "shardId-000000000000"}
    answer = {"FailedRecordCount": 0, "Records": [entry] * count}
    return cbor2.dumps(answer) if is_cbor else json.dumps(answer).encode()


class Connection(socketserver.StreamRequestHandler):
    """Serves one keep-alive connection; a server with further operations overrides `answer`."""

    disable_nagle_algorithm = True
    server: Server
    # Whether the call that is answered is in CBOR, and so the answer.
    is_cbor = False

    def handle(self) -> None:
        # A client that has read enough closes in the middle of an answer.
        with suppress(ConnectionError):
            self._serve()

    def _serve(self) -> None:
        while request_line := self.rfile.readline():
            headers = dict(iter(self._read_header, ("", "")))
            body = self.rfile.read(int(headers.get("content-length", 0)))
            if request_line.startswith(b"GET "):
                self.is_cbor = False
                self._answer_benchmark(request_line.split()[1].decode())
                continue
            operation = headers["x-amz-target"].partition(".")[2]
            self.server.service.calls[operation] += 1
            self.is_cbor = headers.get("content-type") == CBOR
            if operation == "PutRecords":
                # Not parsed: that would cost more than the client's part.
                self._send(b"", b"", accepted(body.count(b"PartitionKey"), self.is_cbor))
                continue
            try:
                self.answer(operation, json.loads(json_of_cbor(body) if self.is_cbor else body))
            except _Refused as error:
                code, message = error.args
                self._send_json(400, {"__type": code, "message": message})

    def _answer_benchmark(self, path: str) -> None:
        """Say what was served until now; ``/release/NAME`` lets the pages of a stream arrive."""
        service = self.server.service
        workload = Workload.parse(path.removeprefix("/release/"))
        if workload is not None:
            service.timeline.release(workload)
        spent = {"cpu_seconds": time.process_time(), "sent_bytes": service.sent_bytes}
        self._send_json(200, spent | {"calls": dict(service.calls)})

    def _read_header(self) -> tuple[str, str]:
        name, _, value = self.rfile.readline().decode("latin-1").partition(":")
        return name.strip().lower(), value.strip()

    def answer(self, operation: str, request: dict[str, Any]) -> None:
        """Answer one call.

        Raises:
            _Refused: with what is answered instead.
        """
        if operation == "GetRecords":
            self._send_records(request)
        else:
            self._send_json(200, self.server.service.answer(operation, request))

    def _send_records(self, request: dict[str, Any]) -> None:
        name, *place, _ = request["ShardIterator"].split("/")
        workload = Workload.parse(name)
        if workload is None:
            raise _Refused("InvalidArgumentException", f"no stream {name!r}")
        shard, page, first = map(int, place)
        service = self.server.service
        available = service.timeline.pages(workload, shard)
        if page >= available:
            self._send(self._head(), b"", self._tail(workload, (shard, available, 0)))
            return
        limit = request.get("Limit", 10_000)
        if page >= workload.pages:
            self._send_trickle(workload, shard, range(page, min(available, page + limit)))
            return
        places = range(first, min(workload.page_records, first + limit))
        tail = self._tail(workload, (shard, page, places.stop))
        with service.page(shard, page, workload, places, is_cbor=self.is_cbor) as records:
            self._send(self._head(), records, tail)

    def _send_trickle(self, workload: Workload, shard: int, pages: range) -> None:
        """Send small pages together: a reader who comes five times a second would not keep up."""
        texts = []
        for page in pages:
            with self.server.service.page(shard, page, workload, is_cbor=self.is_cbor) as records:
                texts.append(bytes(records))
        tail = self._tail(workload, (shard, pages.stop, 0))
        self._send(self._head(), (b"" if self.is_cbor else b",").join(texts), tail)

    def _head(self) -> bytes:
        return b"\xbf" + cbor_text("Records") + b"\x9f" if self.is_cbor else b'{"Records":['

    def _tail(self, workload: Workload, following: tuple[int, int, int]) -> bytes:
        """Return the end of an answer after which shard, page and place ``following`` come."""
        shard, page, place = following
        page, place = page + place // workload.page_records, place % workload.page_records
        timeline = self.server.service.timeline
        answer: dict[str, Any] = {
            "MillisBehindLatest": timeline.millis_behind(workload, shard, page, place)
        }
        if workload.is_open or page < timeline.pages(workload, shard):
            answer["NextShardIterator"] = _iterator(workload, *following)
        else:
            answer["ChildShards"] = []
            self.server.service.ended.add((workload, shard))
        if self.is_cbor:
            members = [cbor_text(name) + cbor2.dumps(value) for name, value in answer.items()]
            return b"\xff" + b"".join(members) + b"\xff"
        return b"]," + json.dumps(answer).encode()[1:]

    def _send_json(self, status: int, answer: dict[str, Any]) -> None:
        text = cbor2.dumps(answer) if self.is_cbor else json.dumps(answer).encode()
        self._send(b"", b"", text, status=status)

    def _send(
        self, head: bytes, middle: bytes | memoryview, tail: bytes, status: int = 200
    ) -> None:
        length = len(head) + len(middle) + len(tail)
        self.server.service.sent_bytes += length
        self.connection.sendall(
            f"HTTP/1.1 {status} {'OK' if status == 200 else 'Bad Request'}\r\n"
            "x-amzn-RequestId: e5d2f3a4-0000-4000-8000-0123456789ab\r\n"
            f"Content-Type: {CBOR if self.is_cbor else 'application/x-amz-json-1.1'}\r\n"
            f"Content-Length: {length}\r\n\r\n".encode()
            + head
        )
        self.connection.sendall(middle)
        self.connection.sendall(tail)


class Server(socketserver.ThreadingTCPServer):
    """Serves each connection in a thread of its own."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024
    service = CannedService()


@contextmanager
def running(module: str, *arguments: str) -> Iterator[str]:
    """Run a server in a process of its own; yields the line that it prints first."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def running_server() -> AbstractContextManager[str]:
    """Run the server in a process of its own; yields its URL."""
    return running("benchmarks.canned_server")


def served(url: str, path: str = "") -> dict[str, Any]:
    """Return what the server at ``url`` has burnt, sent and been asked for so far."""
    with urllib.request.urlopen(f"{url}/{path}") as answer:
        result: dict[str, Any] = json.load(answer)
        return result


def cpu_seconds(url: str) -> float:
    """Return what the server at ``url`` has burnt so far."""
    return float(served(url)["cpu_seconds"])


def release(url: str, workload: Workload) -> None:
    """Let the pages of a stream arrive that says ``burst`` or ``flow``."""
    served(url, f"release/{workload.name}")


def main() -> None:
    """Serve until the standard input ends."""
    with Server(("127.0.0.1", 0), Connection) as server:
        host, port = server.server_address[:2]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        print(f"http://{host}:{port}", flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
