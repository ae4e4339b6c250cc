"""The properties of the KCL's MultiLangDaemon, and what each of them is here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final

from attrs import define, field, frozen

from kinesis_publishers.config import (
    EFO,
    POLLING,
    Assignments,
    AwsConfig,
    CheckpointConfig,
    CredentialsConfig,
    CredentialsProvider,
    DeregistrationPolicy,
    DiscoveryConfig,
    DynamoDbCheckpointConfig,
    Flag,
    InitialPosition,
    InitialPositionConfig,
    LeaseConfig,
    MetricsConfig,
    MetricsLevel,
    Option,
    PollingConfig,
    ProcessingConfig,
    Properties,
    RegistrationConfig,
    RegistrationStrategy,
    Scalar,
    SourceConfig,
    StreamsConfig,
    Text,
    WholeNumber,
    find_option,
    stream_name_of,
)
from kinesis_publishers.config.rules import IneffectiveKey
from kinesis_publishers.errors import (
    ConfigError,
    ConfigErrors,
    InvalidOptionError,
    MissingOptionError,
)

_EXECUTABLE: Final = "executableName"
_CREDENTIALS: Final = "awsCredentialsProvider"

MAPPED: Final[Mapping[str, Option[Any]]] = MappingProxyType(
    {
        "streamName": StreamsConfig.names,
        "streamArn": StreamsConfig.names,
        "applicationName": CheckpointConfig.application,
        "tableName": DynamoDbCheckpointConfig.table,
        "workerId": LeaseConfig.worker_id,
        "workerIdentifier": LeaseConfig.worker_id,
        "failoverTimeMillis": LeaseConfig.failover_seconds,
        "gracefulLeaseHandoffTimeoutMillis": LeaseConfig.handover_seconds,
        "maxLeasesForWorker": LeaseConfig.max_leases,
        "shardSyncIntervalMillis": DiscoveryConfig.interval_seconds,
        "initialPositionInStream": InitialPositionConfig.position,
        "initialPositionInStreamExtended": InitialPositionConfig.timestamp.text,
        "regionName": AwsConfig.region,
        "kinesisEndpoint": AwsConfig.endpoint_url,
        "dynamoDBEndpoint": DynamoDbCheckpointConfig.endpoint_url,
        "maxRecords": PollingConfig.max_records,
        "idleTimeBetweenReadsInMillis": PollingConfig.interval_seconds,
        "retrievalMode": SourceConfig.record_publisher,
        "fanoutConfig.consumerName": RegistrationConfig.consumer_name,
        "fanoutConfig.consumerArn": RegistrationConfig.consumer_arn.member,
        "metricsLevel": MetricsConfig.level,
        "logWarningForTaskAfterMillis": ProcessingConfig.slow_after,
        _CREDENTIALS: CredentialsConfig.provider_option,
    }
)
"""The option that each of the KCL's names sets."""

_POLLING_ONLY: Final = (
    "maxRecords",
    "idleTimeBetweenReadsInMillis",
    "retryGetRecordsInSeconds",
    "maxGetRecordsThreadPool",
    "millisBehindLatestThresholdForReducedTps",
)
_UNUSED: Final = {
    "it changes nothing in the KCL's daemon either": "processingLanguage",
    "no thread waits for a process": "maxActiveThreads maxLeaseRenewalThreads",
    "the end of a parent is known at once": "parentShardPollIntervalMillis",
    "the leases of shards that are gone are removed": (
        "cleanupLeasesUponShardCompletion ignoreUnexpectedChildShards"
    ),
    "calls are repeated by rules of this package (kinesis.retry.outagemillis)": (
        "taskBackoffTimeMillis listShardsBackoffTimeInMillis maxListShardsRetryAttempts "
        "schedulerInitializationBackoffTimeMillis retryGetRecordsInSeconds "
        "fanoutConfig.maxDescribeStreamSummaryRetries fanoutConfig.retryBackoffMillis "
        "fanoutConfig.maxDescribeStreamConsumerRetries fanoutConfig.registerStreamConsumerRetries"
    ),
    "metrics have options of this package (kinesis.metrics)": (
        "metricsBufferTimeMillis metricsMaxQueueSize metricsEnabledDimensions"
    ),
    "every sequence number is checked, without a call": "validateSequenceNumberBeforeCheckpointing",
    "a table that is created is billed on demand, as in the KCL": (
        "initialLeaseTableReadCapacity initialLeaseTableWriteCapacity "
        "leaseTableDeletionProtectionEnabled leaseTablePitrEnabled leaseTableScanTotalSegments"
    ),
    "pages are fetched one after the other": (
        "maxGetRecordsThreadPool millisBehindLatestThresholdForReducedTps"
    ),
    "leases are shared out by rules of this package": (
        "maxLeasesToStealAtOneTime enablePriorityLeaseAssignment shardPrioritization "
        "leaseAssignmentIntervalMillis isGracefulLeaseHandoffEnabled disableWorkerMetrics "
        "maxThroughputPerHostKBps dampeningPercentage reBalanceThresholdPercentage "
        "allowThroughputOvershoot varianceBalancingFrequency inMemoryWorkerMetrics* "
        "staleWorkerMetricsEntryCleanupDuration noOfPersistedMetricsPerWorkerMetrics "
        "skipShardSyncAtWorkerInitializationIfLeasesExist"
    ),
    "only a leader among the KCL's workers needs it": (
        "clientVersionConfig migrateAllEntitiesToLeaseTable coordinatorState* workerMetrics* "
        "tableMigrationCompleteBakeTimeSeconds"
    ),
}
"""Reasons, and the names of the KCL that have no effect for them; ``*`` is any ending."""

_TIMEOUT: Final[Option[int | None]] = Option(
    key="timeoutInSeconds", parser=WholeNumber(minimum=1), doc="How long an answer may take."
)
_GRACE: Final[Option[int | None]] = Option(
    key="shutdownGraceMillis", parser=WholeNumber(minimum=0), doc="How long a stop may take."
)
_PASSES_EMPTY: Final[Option[bool]] = Option(
    key="callProcessRecordsEvenForEmptyRecordList",
    parser=Flag(),
    default=False,
    doc="Whether the processor is called without records, too.",
)
_COMMAND: Final = Option(key=_EXECUTABLE, parser=Text(), default="", doc="The processor.")
_OWN: Final = {option.key: option for option in (_TIMEOUT, _GRACE, _PASSES_EMPTY, _COMMAND)}

# Kubernetes and ECS kill 30 seconds after SIGTERM. The KCL's own default is 0: no time at all.
_GRACE_SECONDS: Final = 20.0
# The KCL's default is slower than this package's.
_IDLE_MILLIS: Final = 1500
# Providers of the SDK for Java that botocore's chain covers, each at its place.
_IN_CHAIN: Final = {
    "DefaultCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    "ContainerCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
}


@frozen(kw_only=True)
class DaemonConfig:
    """What a file of the MultiLangDaemon says.

    Attributes:
        properties: what is read, and how.
        command: the program that processes a shard, with its arguments.
        timeout_seconds: how long it may take to answer; ``None`` without a limit.
        grace_seconds: how long all processors together may take to stop.
        passes_empty: whether an answer without records is handed to the processor, too.
        notes: the keys that have no effect here.
    """

    properties: Properties
    command: tuple[str, ...]
    timeout_seconds: float | None
    grace_seconds: float
    passes_empty: bool
    notes: tuple[IneffectiveKey, ...]


def daemon_config(pairs: Iterable[tuple[str, str]]) -> DaemonConfig:
    """Return what the properties of a MultiLangDaemon mean; keys of this package may be among them.

    Raises:
        ConfigErrors: names every value that is wrong, and every key that cannot be followed.
    """
    # As in Java, the last value of a key counts.
    reader = _Reader({_spelled(key): value.strip() for key, value in pairs})
    own, problems = reader.own_values()
    reader.read()
    command = tuple(own[_EXECUTABLE].split())
    if not command:
        problems.append(MissingOptionError(f"{_EXECUTABLE} is missing: name your processor"))
    if not reader.has(CheckpointConfig.application):
        # Every other option of leases would be a problem without it.
        missing = MissingOptionError("applicationName is missing: name the application")
        raise ConfigErrors([*problems, missing, *reader.assignments.problems])
    reader.assignments.problems += problems
    properties = Properties.from_assignments(reader.assignments).without_end()
    grace = own[_GRACE.key]
    return DaemonConfig(
        properties=properties,
        command=command,
        timeout_seconds=own[_TIMEOUT.key],
        grace_seconds=grace / 1000 if grace else _GRACE_SECONDS,
        passes_empty=own[_PASSES_EMPTY.key],
        notes=tuple(reader.notes),
    )


def properties_in(
    pairs: Sequence[tuple[str, str]], *, complete: bool
) -> tuple[Properties, tuple[IneffectiveKey, ...]]:
    """Return the properties of a file, and its keys of a MultiLangDaemon without effect.

    A file that names an executable is that of a MultiLangDaemon. Raises ``ConfigErrors``.
    """
    if all(key != _EXECUTABLE for key, _ in pairs):
        return Properties.from_pairs(pairs, complete=complete), ()
    config = daemon_config(pairs)
    return config.properties, config.notes


def _reason(key: str) -> str | None:
    """Return why a name of the KCL has no effect here; ``None`` for any other name."""
    reasons = _UNUSED.items()
    return next(
        (why for why, names in reasons if any(fnmatchcase(key, one) for one in names.split())), None
    )


def _spelled(key: str) -> str:
    # The only name in which the KCL ignores upper and lower case.
    is_provider = key.lower().startswith(_CREDENTIALS.lower())
    return f"{_CREDENTIALS}{key[len(_CREDENTIALS) :]}" if is_provider else key


@define
class _Reader:
    """Assigns options, by the KCL's rules, from the values that were given."""

    given: Mapping[str, str]
    assignments: Assignments = field(factory=Assignments, init=False)
    notes: list[IneffectiveKey] = field(factory=list, init=False)

    def has(self, option: Option[Any]) -> bool:
        return any(one.option == option for one in self.assignments.found)

    def own_values(self) -> tuple[dict[str, Any], list[ConfigError]]:
        """Return the values that only the daemon needs, with what is wrong about them."""
        problems: list[ConfigError] = []
        values = {key: option.default for key, option in _OWN.items()}
        for key, option in _OWN.items():
            try:
                if text := self.given.get(key):
                    values[key] = option.parse(text, written_key=key)
            except InvalidOptionError as error:
                problems.append(error)
        return values, problems

    def read(self) -> None:
        for key, value in self.given.items():
            if value and key not in _OWN:
                self._take(key, value)
        self._take_position()
        self._take_publisher()
        self._take_metrics()
        try:
            for option, value in _credentials(self.given):
                self._set(option, _CREDENTIALS, value)
        except InvalidOptionError as error:
            self.assignments.problems.append(error)
        self._default(LeaseConfig.is_enabled, "true")
        self._default(CheckpointConfig.store, "dynamodb")

    def _set(self, option: Option[Any], key: str, value: Scalar) -> None:
        self.assignments.add(option, key, value)

    def _default(self, option: Option[Any], value: Scalar) -> None:
        if not self.has(option):
            self._set(option, option.full_key, value)

    def _take(self, key: str, value: str) -> None:
        client, dot, _ = key.partition(".")
        if (option := find_option(key)) is not None:
            self._set(option, key, value)
        elif (reason := _reason(key)) is not None:
            self.notes.append(IneffectiveKey(key=key, reason=reason))
        elif dot and client in ("kinesisClient", "dynamoDbClient", "cloudWatchClient"):
            self.assignments.add_moved(key, "it configures a client of Java. Remove it")
        elif key.startswith(_CREDENTIALS) or key in _SPECIAL:
            return
        elif (option := MAPPED.get(key)) is not None:
            if key != "streamName" or not self.given.get("streamArn"):
                self._set(option, key, value)
        else:
            near = difflib.get_close_matches(key, [*MAPPED, *_OWN], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            reason = f"the KCL has no such property{hint}"
            self.notes.append(IneffectiveKey(key=key, reason=reason))

    def _take_position(self) -> None:
        if self.given.get("initialPositionInStreamExtended"):
            self._default(InitialPositionConfig.position, InitialPosition.AT_TIMESTAMP.value)
        elif position := self.given.get("initialPositionInStream"):
            self._set(InitialPositionConfig.position, "initialPositionInStream", position)

    def _take_publisher(self) -> None:
        mode = (self.given.get("retrievalMode") or "DEFAULT").upper()
        if mode not in ("DEFAULT", "FANOUT", "POLLING"):
            self.assignments.problems.append(
                InvalidOptionError(
                    f"retrievalMode: got {mode!r}, expected FANOUT, POLLING or DEFAULT"
                )
            )
        # The KCL's rule: any setting of polling chooses polling.
        polls = any(self.given.get(name, "0") != "0" for name in _POLLING_ONLY)
        if mode == "POLLING" or (mode == "DEFAULT" and polls):
            self._default(SourceConfig.record_publisher, POLLING.name)
            self._default(PollingConfig.interval_seconds, _IDLE_MILLIS)
            return
        self._default(SourceConfig.record_publisher, EFO.name)
        self._default(RegistrationConfig.deregister, DeregistrationPolicy.NEVER.value)
        arn = self.given.get("fanoutConfig.consumerArn")
        if arn:
            stream = self.given.get("streamArn") or self.given.get("streamName", "")
            member = RegistrationConfig.consumer_arn.of(stream_name_of(stream))
            self._set(member, "fanoutConfig.consumerArn", arn)
            self._default(RegistrationConfig.strategy, RegistrationStrategy.NONE.value)
        elif application := self.given.get("applicationName"):
            self._default(RegistrationConfig.consumer_name, application)

    def _take_metrics(self) -> None:
        level = self.given.get("metricsLevel", "").upper()
        if level in ("SUMMARY", "DETAILED"):
            of_shard = level == "DETAILED"
            self._default(MetricsConfig.sinks, "log,cloudwatch")
            self._default(
                MetricsConfig.level, (MetricsLevel.SHARD if of_shard else MetricsLevel.STREAM).value
            )
            self._default(MetricsConfig.cloudwatch_namespace, self.given.get("applicationName", ""))
        elif level not in ("", "NONE"):
            self.assignments.problems.append(
                InvalidOptionError(
                    f"metricsLevel: got {level!r}, expected NONE, SUMMARY or DETAILED"
                )
            )
        if millis := self.given.get("logWarningForTaskAfterMillis"):
            self._set(ProcessingConfig.slow_after, "logWarningForTaskAfterMillis", f"{millis}ms")


# Those of which the value is not that of the option.
_SPECIAL: Final = frozenset(
    {
        "initialPositionInStream",
        "retrievalMode",
        "fanoutConfig.consumerArn",
        "metricsLevel",
        "logWarningForTaskAfterMillis",
    }
)


def _credentials(given: Mapping[str, str]) -> Iterator[tuple[Option[Any], str]]:
    """Yield the options that mean the providers of credentials of the SDK for Java."""
    named = {key: value for key, value in given.items() if key.startswith(_CREDENTIALS) and value}
    known = [_CREDENTIALS, f"{_CREDENTIALS}DynamoDB", f"{_CREDENTIALS}CloudWatch"]
    if strange := named.keys() - {*known}:
        raise InvalidOptionError(f"{min(strange)} configures a class of Java: remove it")
    if len({*named.values()}) > 1:
        raise InvalidOptionError(
            f"{', '.join(named)} differ: one provider serves Kinesis, DynamoDB and CloudWatch here"
        )
    providers = [one.strip() for one in next(iter(named.values()), "").split(",") if one.strip()]
    names = [one.split("|")[0].rpartition(".")[2] for one in providers]
    chain = {*_IN_CHAIN, "EnvironmentVariableCredentialsProvider"}
    if {*names} <= _IN_CHAIN or (len(names) > 1 and {*names} <= chain):
        return
    option, provider = CredentialsConfig.provider_option, CredentialsProvider
    _, *arguments = providers[0].split("|")
    if names == ["EnvironmentVariableCredentialsProvider"]:
        yield option, provider.ENV_VAR.value
    elif names == ["ProfileCredentialsProvider"]:
        yield option, provider.PROFILE.value
        yield from zip([CredentialsConfig.profile_name], arguments[:1], strict=False)
    elif names == ["StsAssumeRoleCredentialsProvider"] and len(arguments) >= 2:
        yield option, provider.ASSUME_ROLE.value
        yield CredentialsConfig.role_arn, arguments[0]
        yield CredentialsConfig.role_session_name, arguments[1]
        yield from map(_role_argument, arguments[2:])
    else:
        # Not the value: it may have secrets as arguments.
        raise InvalidOptionError(
            f"{_CREDENTIALS}: {', '.join(names)} is not known here; remove it and set "
            f"{option.full_key}"
        )


def _role_argument(text: str) -> tuple[Option[Any], str]:
    name, _, value = text.partition("=")
    if name == "externalId":
        return CredentialsConfig.role_external_id, value
    if name == "endpointRegion":
        return CredentialsConfig.sts_endpoint_url, f"https://sts.{value}.amazonaws.com"
    if name == "endpoint":
        url = value.partition("^")[0]
        return CredentialsConfig.sts_endpoint_url, url if "://" in url else f"https://{url}"
    raise InvalidOptionError(f"{_CREDENTIALS}: {name} is no argument of a role here; remove it")
