"""``kinesis-publishers leases``: the stored leases and checkpoints of an application."""

from __future__ import annotations

from kinesis_publishers.cli.leases.command import leases as leases
