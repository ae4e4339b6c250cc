"""The typed views of the options of checkpoints, and the rules between them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from kinesis_publishers.config.options import checkpoints
from kinesis_publishers.errors import ConfigError, InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesis_publishers.config.option import Lookup, Option
    from kinesis_publishers.config.properties import Properties
    from kinesis_publishers.retry import RetryPolicy

__all__ = [
    "CheckpointConfig",
    "DynamoDbCheckpointConfig",
    "SqliteCheckpointConfig",
    "checkpoint_problems",
]

_DEFAULT_FILE = Path("kinesis-publishers") / "checkpoints.sqlite3"


@frozen(kw_only=True)
class CheckpointConfig:
    """Whether progress is stored, where, and how often.

    Attributes:
        application: whose progress it is; ``None`` stores nothing.
        store: ``memory``, ``sqlite``, ``dynamodb``, ``module:Class`` or the name of an entry point.
        interval_seconds: how long processed records may wait for their checkpoint.
        max_records: how many processed records may wait for it.
        retry: how a call to the store is repeated.
    """

    application: str | None
    store: str
    interval_seconds: float
    max_records: int
    retry: RetryPolicy

    @classmethod
    def from_properties(cls, properties: Properties) -> CheckpointConfig:
        """Read the options of all stores."""
        return cls(
            application=properties.get(checkpoints.APPLICATION),
            store=properties.get(checkpoints.STORE),
            interval_seconds=properties.seconds(checkpoints.INTERVAL),
            max_records=properties.get(checkpoints.MAX_RECORDS),
            retry=properties.retry_policy(checkpoints.STORE_RETRIES),
        )


@frozen(kw_only=True)
class SqliteCheckpointConfig:
    """Which file has the checkpoints.

    Attributes:
        path: the file; ``~`` has been replaced.
    """

    path: Path

    @classmethod
    def from_properties(cls, properties: Properties) -> SqliteCheckpointConfig:
        """Read the options of sqlite.

        Raises:
            InvalidOptionError: ``~`` stands for a directory that nobody knows.
        """
        written = properties.get(checkpoints.SQLITE_PATH)
        try:
            path = _default_path() if written is None else Path(written).expanduser()
        except RuntimeError as error:
            raise InvalidOptionError(
                f"{checkpoints.SQLITE_PATH.full_key}: {error}; set it to a path without ~"
            ) from error
        return cls(path=path)


@frozen(kw_only=True)
class DynamoDbCheckpointConfig:
    """Which table has the checkpoints.

    Attributes:
        table: its name.
        endpoint_url: the DynamoDB endpoint, ``None`` for AWS's own.
        create_table: whether it is created if it is missing.
    """

    table: str
    endpoint_url: str | None
    create_table: bool

    @classmethod
    def from_properties(cls, properties: Properties) -> DynamoDbCheckpointConfig:
        """Read the options of dynamodb."""
        return cls(
            table=properties.get(checkpoints.DYNAMODB_TABLE),
            endpoint_url=properties.get(checkpoints.DYNAMODB_ENDPOINT),
            create_table=properties.get(checkpoints.DYNAMODB_CREATE_TABLE),
        )


def checkpoint_problems(lookup: Lookup) -> Iterator[ConfigError]:
    """Yield the options of checkpoints that have no effect beside the others."""
    if not lookup.is_given(checkpoints.APPLICATION):
        for key in _given(lookup, checkpoints.OPTIONS):
            yield InvalidOptionError(
                f"{key} is set but {checkpoints.APPLICATION.full_key} is not, without which no "
                "checkpoint is kept: name the application, or remove the option"
            )
        return
    if lookup.is_refused(checkpoints.STORE):
        return
    store = lookup.get(checkpoints.STORE)
    for owner, options in (
        ("sqlite", checkpoints.SQLITE_OPTIONS),
        ("dynamodb", checkpoints.DYNAMODB_OPTIONS),
    ):
        if store != owner:
            for key in _given(lookup, options):
                yield InvalidOptionError(
                    f"{key} is for the store {owner}, and {lookup.written_key(checkpoints.STORE)} "
                    f"is {store}: remove one of them, or set the store to {owner}"
                )


def _given(lookup: Lookup, options: Iterable[Option[Any]]) -> list[str]:
    return [lookup.written_key(option) for option in options if lookup.is_given(option)]


def _default_path() -> Path:
    # Relative paths in it are to be ignored (XDG Base Directory Specification).
    state = os.environ.get("XDG_STATE_HOME", "")
    directory = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()
    return directory / _DEFAULT_FILE
