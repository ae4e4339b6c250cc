"""A processor for the MultiLangDaemon: says each record on standard error, and checkpoints."""

import json
import sys
from base64 import b64decode


def say(**fields: object) -> None:
    sys.stdout.write(f"{json.dumps(fields)}\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        action = message["action"]
        for record in message.get("records", ()):
            sys.stderr.write(f"record {b64decode(record['data']).decode()}\n")
        if action in ("processRecords", "shardEnded", "shutdownRequested"):
            say(action="checkpoint", sequenceNumber=None, subSequenceNumber=None)
            sys.stderr.write(f"checkpoint {json.loads(sys.stdin.readline())['error']}\n")
        say(action="status", responseFor=action)


if __name__ == "__main__":
    main()
