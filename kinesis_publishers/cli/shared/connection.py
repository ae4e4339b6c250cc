"""The options by which every command finds its streams, and the resulting properties."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import click
from attrs import field, frozen

from kinesis_publishers.assembly import open_control
from kinesis_publishers.cli.shared.commands import LOCAL_PORT, OPTION_KEYS, checked, read_file
from kinesis_publishers.config import (
    AwsConfig,
    CredentialsConfig,
    DiscoveryConfig,
    Properties,
    RegistrationConfig,
    SourceConfig,
    StreamsConfig,
    StreamSelector,
)
from kinesis_publishers.config.catalogue import find_option
from kinesis_publishers.config.properties import pairs_in
from kinesis_publishers.model import Shard, StreamIdentity

_T = TypeVar("_T")
_V = TypeVar("_V")

# A person waits: an unreachable service is reported within seconds, unless the properties set
# another number. An application retries for minutes.
_PATIENCE: Final = {
    options.max_retries: 3
    for options in (
        DiscoveryConfig.describe_retry,
        DiscoveryConfig.list_shards_retry,
        RegistrationConfig.describe_retry,
        RegistrationConfig.list_retry,
        RegistrationConfig.register_retry,
    )
}
# The defaults of the local server, which accepts any credentials and any region.
LOCAL: Final = {
    AwsConfig.endpoint_url.full_key: f"http://127.0.0.1:{LOCAL_PORT}",
    AwsConfig.region.full_key: "us-east-1",
    CredentialsConfig.access_key_id.full_key: "local",
    CredentialsConfig.secret_key.full_key: "local",
}


@frozen
class Connection:
    """Where to connect and what to read: the properties of a file, and of the command line."""

    # As they were read, which is once: the file may be a pipe. They may have secrets.
    file: Sequence[tuple[str, str]] = field(repr=False)
    # By their documented keys. The options that stand for properties are among them.
    line: dict[str, str] = field(repr=False)

    def properties(
        self, more: Mapping[str, str | None] = MappingProxyType({}), *, complete: bool = True
    ) -> Properties:
        """Return everything as properties; raises ``ConfigErrors``.

        The last source takes precedence: the file, the command line, ``more``, where ``None``
        leaves an option out. ``complete=False`` is for a command that needs no stream.
        """
        line = {**self.line, **more}
        # The same option may stand in the file in another spelling.
        file = [(key, value) for key, value in self.file if _full_key(key) not in line]
        named = [(key, value) for key, value in line.items() if value is not None]
        properties = Properties.from_pairs([*file, *named], complete=complete)
        patience = {key: n for key, n in _PATIENCE.items() if not properties.is_given(key)}
        return properties.with_values(patience)

    def properties_without_reading(
        self, more: Mapping[str, str | None] = MappingProxyType({})
    ) -> Properties:
        """Return :meth:`properties`, which may lack what only reading needs, such as ARNs."""
        publisher = SourceConfig.record_publisher
        return self.properties({publisher.full_key: publisher.default, **more})


async def listed_shards(
    properties: Properties,
) -> tuple[dict[StreamIdentity, tuple[Shard, ...]], datetime]:
    """Return the streams with all shards that they list, and the time of the service."""
    async with open_control(properties) as control:
        list_shards = control.discovery.list_shards
        found = {stream: await list_shards(stream.arn) for stream in await control.streams()}
        return found, control.clock.now()


def only_stream(properties: Properties) -> StreamSelector:
    """Return the one stream; several are wrong usage."""
    streams = StreamsConfig.from_properties(properties).streams
    if len(streams) > 1:
        names = ", ".join(stream.name for stream in streams)
        raise click.UsageError(
            f"This takes one stream, and there are {names}: choose one with --stream."
        )
    return streams[0]


def by_full_key(pairs: Iterable[tuple[str, _V]]) -> dict[str, _V]:
    """Return the last value of each option by its documented key, in any spelling."""
    return {_full_key(key): value for key, value in pairs}


def _full_key(key: str) -> str:
    option = find_option(key)
    return option.full_key if option else key


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (separator and key.strip()):
        raise ValueError("no key, or no value")
    return key.strip(), value.strip()


# The text is not repeated: it may be a secret.
_PAIR: Final = checked(_pair, "expected KEY=VALUE, as kinesis.stream.initpos=TRIM_HORIZON.")
_STREAM: Final = click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="STREAM",
    help="The name or the ARN of a stream. Can be repeated if the command reads several.",
)
_OPTIONS: Final = (
    click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A .properties file: where to connect, what to read and how.",
    ),
    click.option(
        "-P",
        "--property",
        "pairs",
        multiple=True,
        type=_PAIR,
        metavar="KEY=VALUE",
        help="One property, which takes precedence over the file. Can be repeated.",
    ),
    _STREAM,
    click.option("--region", metavar="REGION", help="The region, such as eu-west-1."),
    click.option("--endpoint", metavar="URL", help="An endpoint other than AWS's."),
    click.option(
        "--local",
        "is_local",
        is_flag=True,
        help="Use the server that 'kinesis-publishers local' runs on this machine.",
    ),
)
stream_argument = click.argument("named", nargs=-1, metavar="[STREAM]...")
"""Names streams as ``--stream`` does; above :func:`connection_options`."""


def connection_options(
    command: Callable[..., _T], *, options: Sequence[Callable[..., Any]] = _OPTIONS
) -> Callable[..., _T]:
    """Give ``command`` the common options, which it takes as one value named ``connection``.

    The lowest of the decorators, so that the help shows them after the command's own.
    """

    @functools.wraps(command)
    def with_connection(*args: Any, config: Path | None, **values: Any) -> _T:
        file = pairs_in(read_file(config), name=str(config)) if config else ()
        values["streams"] = ",".join((*values.pop("named", ()), *values.get("streams", ())))
        given = {key: values.pop(name, None) for name, key in OPTION_KEYS.items()}
        local = LOCAL if values.pop("is_local") else {}
        options = ((key, value) for key, value in given.items() if value)
        # The last one takes precedence.
        line = by_full_key([*local.items(), *values.pop("pairs"), *options])
        return command(*args, connection=Connection(file, line), **values)

    decorated: Callable[..., _T] = with_connection
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


region_options: Final = functools.partial(
    connection_options, options=[one for one in _OPTIONS if one is not _STREAM]
)
"""As :func:`connection_options`, without ``--stream``."""
