"""``kinesis-publishers tail``: reads streams and shows what arrives."""

from __future__ import annotations

from kinesis_publishers.cli.tail.command import tail as tail
