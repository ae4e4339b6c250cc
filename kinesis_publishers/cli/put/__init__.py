"""``kinesis-publishers put``: writes records that come from arguments, a file or a pipe."""

from __future__ import annotations

from kinesis_publishers.cli.put.command import put as put
