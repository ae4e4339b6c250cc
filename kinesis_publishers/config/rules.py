"""Rules between options. Each yields its problems, so that all are reported together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from attrs import frozen

from kinesis_publishers.config.assignments import unread_custom_problems
from kinesis_publishers.config.catalogue import OWN_OPTIONS, extensions
from kinesis_publishers.config.option import Lookup, Option, value_text
from kinesis_publishers.config.sections.aws import AWS_DOMAINS, AwsConfig, credential_problems
from kinesis_publishers.config.sections.checkpoints import (
    ALL,
    CHECKPOINT_OPTIONS,
    LEASES,
    MANUAL,
    STORE_SECTIONS,
    AssignmentConfig,
    CheckpointConfig,
    DynamoDbCheckpointConfig,
    LeaseConfig,
    RedisCheckpointConfig,
    SqlCheckpointConfig,
    assigner_of,
    shards_of,
)
from kinesis_publishers.config.sections.positions import (
    POSITION_SECTIONS,
    position_problems,
    unused_instants,
)
from kinesis_publishers.config.sections.producing import ProducerConfig
from kinesis_publishers.config.sections.reading import (
    FanOutConfig,
    HttpVersion,
    PollingConfig,
    ShardLimits,
    SubscriptionHttpConfig,
)
from kinesis_publishers.config.sections.registration import (
    RegistrationConfig,
    RegistrationStrategy,
    consumer_arn,
)
from kinesis_publishers.config.sections.source import (
    SourceConfig,
    StreamsConfig,
    StreamSelector,
    built_in_publisher,
    selected_streams,
)
from kinesis_publishers.errors import ConfigError, InvalidOptionError, MissingOptionError
from kinesis_publishers.model.sources import consumer_name_of, stream_arn_of, stream_name_of

_Streams: TypeAlias = Sequence[StreamSelector]
_TABLE: Final = DynamoDbCheckpointConfig
_CAPACITY: Final = (_TABLE.read_capacity, _TABLE.write_capacity)
# An option, its required value, and the options that have no effect otherwise.
_ONLY_WITH: Final[tuple[tuple[Option[Any], str, Sequence[Option[Any]]], ...]] = (
    *((CheckpointConfig.store, name, one.options()) for name, one in STORE_SECTIONS.items()),
    (_TABLE.create_table, "true", (_TABLE.billing_mode, _TABLE.tags, *_CAPACITY)),
    (_TABLE.billing_mode, "PROVISIONED", _CAPACITY),
    (LeaseConfig.is_enabled, "true", LeaseConfig.options()),
    (CheckpointConfig.store, "dynamodb", (LeaseConfig.written_format,)),
    # It keeps records for later that have failed.
    (ProducerConfig.fails_on_error, "false", (ProducerConfig.spill_path,)),
)


def find_problems(lookup: Lookup, *, complete: bool) -> list[ConfigError]:
    """Return every violation; a ``complete`` configuration has all required options."""
    try:
        streams = selected_streams(lookup)
        stream_problems = [*_regions_of_streams(lookup, streams)]
    except ConfigError as error:
        streams, stream_problems = (), [error]
    required = (one for one in OWN_OPTIONS if one.required)
    return [
        *(one.missing() for one in required if complete and not lookup.is_given(one)),
        *stream_problems,
        *position_problems(lookup),
        *_fan_out_problems(lookup, streams),
        *_positions_of_streams(lookup, streams),
        *(problem for one in extensions() for rule in one.RULES for problem in rule(lookup)),
        *_other_regions(lookup, streams),
        *_limits_of_aws(lookup),
        *_checkpoint_problems(lookup),
        *_effectless_problems(lookup),
        *_assignment_problems(lookup, streams),
        *credential_problems(lookup),
        *unread_custom_problems(lookup),
    ]


def _regions_of_streams(lookup: Lookup, streams: _Streams) -> Iterator[ConfigError]:
    regions = sorted({stream.region for stream in streams if stream.region})
    if len(regions) > 1 and not lookup.is_given(AwsConfig.region):
        yield InvalidOptionError(
            f"{lookup.written_key(StreamsConfig.names)}: the ARNs are in different regions "
            f"({', '.join(regions)}): read the streams of each region on their own"
        )


def _other_regions(lookup: Lookup, streams: _Streams) -> Iterator[ConfigError]:
    region = lookup.get(AwsConfig.region)
    # An emulator accepts any region.
    if not region or lookup.get(AwsConfig.endpoint_url):
        return
    others = [one for one in streams if one.region not in {None, region.lower()}]
    if others:
        listed = ", ".join(f"{one.region} ({one.arn})" for one in others)
        yield InvalidOptionError(
            f"{lookup.written_key(AwsConfig.region)} is {region}, but "
            f"{StreamsConfig.names.full_key} has streams of {listed}: leave the region out, or "
            "name the streams of that region"
        )


def _limits_of_aws(lookup: Lookup) -> Iterator[ConfigError]:
    if lookup.get(PollingConfig.limits) is ShardLimits.AWS:
        return
    host = urlsplit(lookup.get(AwsConfig.endpoint_url) or "").hostname
    if host is None or host.rstrip(".").endswith(AWS_DOMAINS):
        yield InvalidOptionError(
            f"{lookup.written_key(PollingConfig.limits)} is off, but AWS limits the calls to each "
            f"shard: leave it out, or set {AwsConfig.endpoint_url.full_key} to a server that has "
            "no limits"
        )


def _positions_of_streams(lookup: Lookup, streams: _Streams) -> Iterator[ConfigError]:
    configured = {name for one in streams for name in (one.name, one.arn)}
    for section in POSITION_SECTIONS:
        key = lookup.written_key(section.shards)
        for name in sorted({scope.stream for scope, _ in lookup.get(section.shards)}):
            if not name and len(streams) > 1:
                yield InvalidOptionError(
                    f"{key} has positions by shard id, which is not unique in {len(streams)} "
                    f'streams: put those of each stream below its name: {{"{streams[0].name}": '
                    '{"shardId-...": {...}}}'
                )
            elif name and streams and name not in configured:
                yield InvalidOptionError(
                    f"{key} has positions of {name}, which {StreamsConfig.names.full_key} does not "
                    "name so"
                )


def _fan_out_problems(lookup: Lookup, streams: _Streams) -> Iterator[ConfigError]:
    publisher = built_in_publisher(lookup)
    if publisher is None or not publisher.needs_registration:
        return
    yield from _protocol_problems(lookup)
    for stream in streams:
        yield from _contradictions_of_consumer(lookup, stream)
    if lookup.is_refused(RegistrationConfig.strategy):
        return
    strategy = lookup.get(RegistrationConfig.strategy)
    if strategy is RegistrationStrategy.NONE:
        yield from _missing_consumer_arns(lookup, streams)
    elif not lookup.is_given(RegistrationConfig.consumer_name):
        yield MissingOptionError(
            f"{RegistrationConfig.consumer_name.full_key} is required for {publisher.name} with "
            f"{strategy.value} registration: this application registers under it on each stream"
        )


def _protocol_problems(lookup: Lookup) -> Iterator[ConfigError]:
    version, endpoint = SubscriptionHttpConfig.version, AwsConfig.endpoint_url
    is_plain = (lookup.get(endpoint) or "").lower().startswith("http://")
    if is_plain and lookup.get(version) is HttpVersion.HTTP_2:
        yield InvalidOptionError(
            f"{lookup.written_key(version)} is 2, which needs TLS, and "
            f"{lookup.written_key(endpoint)} begins with http://: use an https:// endpoint, or "
            "auto or 1.1"
        )


def _contradictions_of_consumer(lookup: Lookup, stream: StreamSelector) -> Iterator[ConfigError]:
    key = RegistrationConfig.consumer_arn.of(stream.name).full_key
    arn = consumer_arn(lookup, stream.name)
    if arn is None:
        return
    stream_arn, consumer_name = stream_arn_of(arn), consumer_name_of(arn)
    if stream.reference not in (stream_arn, stream_name_of(stream_arn)):
        yield InvalidOptionError(
            f"{key}: {arn!r} is a consumer of another stream, region or account, expected one of "
            f"{stream.reference!r}"
        )
    name = lookup.get(RegistrationConfig.consumer_name)
    if name not in (None, consumer_name):
        yield InvalidOptionError(
            f"{key}: {arn!r} is the consumer {consumer_name!r}, but "
            f"{lookup.written_key(RegistrationConfig.consumer_name)} is {name!r}: make them agree, "
            "or remove one"
        )


def _missing_consumer_arns(lookup: Lookup, streams: _Streams) -> Iterator[ConfigError]:
    family = RegistrationConfig.consumer_arn
    missing = [
        family.of(stream.name).full_key
        for stream in streams
        if consumer_arn(lookup, stream.name) is None and not lookup.is_given(family.of(stream.name))
    ]
    if missing:
        yield MissingOptionError(
            f"{RegistrationConfig.strategy.full_key} is NONE: set {', '.join(missing)} to "
            f"{family.member.parser.accepts}"
        )


def _checkpoint_problems(lookup: Lookup) -> Iterator[ConfigError]:
    application, enabled = CheckpointConfig.application, LeaseConfig.is_enabled
    if not lookup.is_given(application):
        leases = (enabled,) if lookup.get(enabled) else ()
        for key in lookup.given_keys((*CHECKPOINT_OPTIONS, *leases)):
            yield InvalidOptionError(
                f"{key} is set but {application.full_key} is not, and without it there are "
                "neither checkpoints nor leases: name the application, or remove the option"
            )
    for name, url in (("sql", SqlCheckpointConfig.url), ("redis", RedisCheckpointConfig.url)):
        if lookup.get(CheckpointConfig.store) == name and not lookup.is_given(url):
            yield url.missing()


def _effectless_problems(lookup: Lookup) -> Iterator[ConfigError]:
    for needed, value, options in _ONLY_WITH:
        found = value_text(lookup.get(needed))
        if found == value or lookup.is_refused(needed):
            continue
        for key in lookup.given_keys(one for one in options if one is not needed):
            yield InvalidOptionError(
                f"{key} is for {lookup.written_key(needed)} = {value}, which is {found}: change "
                "that, or remove the option"
            )


def _assignment_problems(lookup: Lookup, streams: _Streams) -> Iterator[ConfigError]:
    assigner, shards = AssignmentConfig.written_assigner, AssignmentConfig.written_shards
    names = {stream.name for stream in streams}
    unknown = {stream for stream, _ in shards_of(lookup)} - names
    if unknown and names:
        yield InvalidOptionError(
            f"{lookup.written_key(shards)} names shards of {', '.join(sorted(unknown))}, which "
            f"{StreamsConfig.names.full_key} does not name: {', '.join(sorted(names))}"
        )
    if lookup.is_refused(assigner):
        return
    chosen, enabled = assigner_of(lookup), LeaseConfig.is_enabled
    if (chosen == LEASES) != lookup.get(enabled) and not lookup.is_refused(enabled):
        yield InvalidOptionError(
            f"{lookup.written_key(assigner)} is {chosen}, and {lookup.written_key(enabled)} is "
            f"{value_text(lookup.get(enabled))}: set it to true with LEASES, and to false "
            "otherwise"
        )
    if chosen == MANUAL and not lookup.is_given(shards):
        yield shards.missing()
    elif chosen in (ALL, LEASES) and lookup.is_given(shards):
        other: Option[Any] = assigner if lookup.is_given(assigner) else enabled
        yield InvalidOptionError(
            f"{lookup.written_key(shards)} names the only shards to read, and "
            f"{lookup.written_key(other)} is {value_text(lookup.get(other))}: remove one of the two"
        )


@frozen(kw_only=True)
class IneffectiveKey:
    """A key, as the user wrote it, that is valid and has no effect, and the reason."""

    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key} has no effect: {self.reason}"


def ineffective_keys(lookup: Lookup) -> tuple[IneffectiveKey, ...]:
    """Return the keys that have no effect, without those that your own publisher may read."""
    unused = (*unused_instants(lookup), *_unused_fan_out(lookup))
    return tuple(
        IneffectiveKey(key=lookup.written_key(option), reason=reason)
        for option, reason in unused
        if lookup.is_given(option)
    )


def _unused_fan_out(lookup: Lookup) -> Iterator[tuple[Option[Any], str]]:
    publisher = built_in_publisher(lookup)
    if publisher is None or publisher.needs_registration:
        return
    reason = f"{lookup.written_key(SourceConfig.record_publisher)} is {publisher.name}"
    for section in (RegistrationConfig, SubscriptionHttpConfig, FanOutConfig):
        for option in section.options():
            yield option, reason
    for name in lookup.members(RegistrationConfig.consumer_arn):
        yield RegistrationConfig.consumer_arn.of(name), reason
