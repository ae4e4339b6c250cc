"""What all tests share: nothing of this machine's AWS, proxy or terminal settings, and Ctrl-C."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

# Before anything imports botocore or Spark; the processes that tests start inherit it.
for _name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[_name]
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
for _name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BOTO_CONFIG"):
    os.environ[_name] = os.devnull
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
for _name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
    os.environ.pop(_name, None)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def _own_leases(tmp_path_factory: pytest.TempPathFactory) -> None:
    # Who uses a stream consumer is agreed upon in files below it.
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session", autouse=True)
def _interrupts_arrive() -> Iterator[None]:
    # A shell starts background jobs with Ctrl-C ignored; the processes that tests interrupt would
    # inherit that.
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
