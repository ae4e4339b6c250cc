"""Chooses the partition keys of records that are put without one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from kinesis_publishers.config import Properties


class Partitioner(ABC):
    """Chooses the partition key, and so the shard, of each record that is put without one.

    ``kinesis.producer.partitioner`` names one: RANDOM, an entry point, or ``module:Class``. One
    instance serves a producer, on its event loop.
    """

    @classmethod
    def from_properties(cls, properties: Properties) -> Self:
        """Return a partitioner; unless overridden, made without arguments.

        Raises:
            ConfigError: the properties cannot work; no call is made to find out.
        """
        return cls()

    @abstractmethod
    def keys_of(self, data: bytes) -> tuple[str, str | None]:
        """Return the partition key for a record, and its explicit hash key or ``None``.

        It runs for every record that is put without a partition key, and must not block. What it
        raises is raised by ``put``, and so is an error for keys that Kinesis would refuse.
        """
