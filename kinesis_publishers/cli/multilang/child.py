"""The process of a processor: what it is told, what it answers, and how it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Self

from attrs import define, field

from kinesis_publishers.cli.shared.console import printable
from kinesis_publishers.clock import Clock
from kinesis_publishers.errors import KinesisPublishersError

_LOGGER = logging.getLogger(__name__)

CHECKPOINT: Final = "checkpoint"
"""The action of a request to checkpoint, and of its answer."""
# A message has a few hundred bytes. A longer line is output of the processor, and is not kept: its
# end counts as a line.
_LONGEST_LINE: Final = 1_048_576
# How long a processor that was told to end may still work.
_END_SECONDS: Final = 10.0


class ProcessorError(KinesisPublishersError):
    """A processor has failed; its last checkpoint stays, and the next run repeats the rest."""


@define(eq=False)
class Child:
    """A process that speaks the protocol; its standard error is this process's."""

    _name: str
    _process: Process
    _clock: Clock
    _is_warned_of: bool = field(default=False, init=False)

    @classmethod
    async def start(cls, name: str, command: Sequence[str], clock: Clock) -> Self:
        """Start the process for the shard ``name``; raises ``ProcessorError``."""
        try:
            # A group of its own: Ctrl-C is for this process, which ends the others in order.
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, limit=_LONGEST_LINE, process_group=0
            )
        except OSError as error:
            raise ProcessorError(
                f"The processor {command[0]!r} of {name} cannot be started: {error.strerror}"
            ) from error
        return cls(name, process, clock)

    def write(self, line: bytes) -> None:
        """Send a line, without a wait: the process may be writing itself."""
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(line)

    async def answer(self) -> dict[str, Any]:
        """Return the next message; raises ``ProcessorError`` after the end of its output."""
        while line := await self._line():
            if (found := _parse(line)) is not None:
                return found
            text = printable(line.decode(errors="replace").strip()[:200])
            if text and self._is_warned_of:
                _LOGGER.info("The processor of %s writes: %s", self._name, text)
            elif text:
                self._is_warned_of = True
                _LOGGER.warning(
                    "The processor of %s writes to its standard output what is no message: %s. "
                    "Further such lines are logged at level INFO (--debug)",
                    self._name,
                    text,
                )
        # It may have closed its standard output only.
        await self.end()
        code = self._process.returncode
        raise ProcessorError(f"The processor of {self._name} has ended with {code}")

    async def _line(self) -> bytes:
        """Return the next line that is not too long, empty at the end."""
        assert self._process.stdout is not None
        while True:
            try:
                return await self._process.stdout.readline()
            except ValueError:
                _LOGGER.warning("The processor of %s writes a line too long to be read", self._name)

    async def end(self) -> None:
        """Let the process end by the end of its input; kill it if that takes long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with self._clock.timeout(_END_SECONDS):
                while await self._line():
                    pass
                await self._process.wait()
        except asyncio.CancelledError:
            self.kill()
            raise
        except TimeoutError:
            # The KCL would wait for ever.
            _LOGGER.warning("The processor of %s does not end, and is killed", self._name)
            self.kill()
            # Something of another group may still have its standard output.
            with suppress(TimeoutError):
                async with self._clock.timeout(_END_SECONDS):
                    await self._process.wait()

    def kill(self) -> None:
        """Kill the process, and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return the fields of a message that a processor wrote; ``None`` if it is something else.

    A processor's libraries write to its standard output, too: the KCL passes over such lines.
    """
    try:
        # Not by orjson, which would round a sequence number that comes as a number.
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_message = isinstance(found, dict) and found.get("action") in ("status", CHECKPOINT)
    return found if is_message else None
