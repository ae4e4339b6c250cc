"""The same messages as from the daemon for Java, version 3.5.1 of the KCL."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

from kinesis_publishers.cli.multilang import run_daemon
from kinesis_publishers.cli.shared.kcl_properties import daemon_config
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.tasks import TaskScope
from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from tests.integration.cli.daemon_support import Daemon
from tests.integration.cli.transcripts import TRANSCRIPT, command, fill, is_complete, transcript

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_processor_is_told_what_the_daemon_for_java_tells_it(tmp_path: Path) -> None:
    with LocalKinesis.in_thread(Limits.off()) as server:
        fill(server)
        pairs = Daemon(server, tmp_path).pairs(executableName=command(tmp_path))

        async def stop() -> None:
            while not is_complete(tmp_path):
                await SystemClock().sleep(0.05)
            os.kill(os.getpid(), signal.SIGTERM)

        async with TaskScope() as scope:
            scope.spawn(run_daemon(daemon_config(pairs)), name="daemon")
            scope.spawn(stop(), name="stop")
        assert transcript(server, tmp_path) == json.loads(TRANSCRIPT.read_text())
