"""A processor that a test plays: what comes in goes to a socket, what comes from there goes out."""

import os
import socket
import sys
from threading import Thread


def main() -> None:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    stream = connection.makefile("rb")

    def pass_on() -> None:
        for line in sys.stdin.buffer:
            connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)

    Thread(target=pass_on, daemon=True).start()
    while block := stream.readline(100_000):
        if block.startswith(b"exit "):
            os._exit(int(block.split()[1]))
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
