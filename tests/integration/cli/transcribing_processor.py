"""A processor that writes down what the daemon says, and asks for checkpoints of every kind.

Its argument is a folder, in which each shard gets a file.
"""

import json
import sys
from pathlib import Path
from typing import Any


def say(**fields: object) -> None:
    sys.stdout.write(f"\n{json.dumps(fields)}\n")
    sys.stdout.flush()


def wanted_checkpoints(message: dict[str, Any]) -> list[tuple[object, object]]:
    if message["action"] != "processRecords":
        return [(None, None)]
    if not message["records"]:
        return []
    numbers = [(one["sequenceNumber"], one["subSequenceNumber"]) for one in message["records"]]
    first, last = numbers[0], numbers[-1]
    return [
        (first[0], None),
        ("1", 0),
        last,
        ("None", None),
        (first[0], -1),
        (last[0], -1),
        (None, None),
        (str(int(last[0]) + 1), 0),
        last,
    ]


def main() -> None:
    begin = sys.stdin.readline()
    path = Path(sys.argv[1]) / json.loads(begin)["shardId"]
    with path.open("w") as transcript:
        line = begin
        while line:
            transcript.write(line)
            for number, sub in wanted_checkpoints(json.loads(line)):
                say(action="checkpoint", sequenceNumber=number, subSequenceNumber=sub)
                transcript.write(sys.stdin.readline())
            transcript.flush()
            say(action="status", responseFor=json.loads(line)["action"])
            line = sys.stdin.readline()


if __name__ == "__main__":
    main()
