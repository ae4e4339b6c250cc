"""The properties of the KCL's MultiLangDaemon, and what each of them means here."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from attrs import frozen

from kinesis_publishers import config as cf
from kinesis_publishers.config.option import OptionFamily
from kinesis_publishers.config.rules import IneffectiveKey
from kinesis_publishers.errors import ConfigErrors, InvalidOptionError, MissingOptionError
from kinesis_publishers.model import PositionType
from kinesis_publishers.model.sources import region_of

_EXECUTABLE: Final = "executableName"
_CREDENTIALS: Final = "awsCredentialsProvider"
_CONSUMER_ARN: Final = "fanoutConfig.consumerArn"
MAPPED: Final[Mapping[str, cf.Option[Any] | OptionFamily[Any]]] = {
    "streamName": cf.StreamsConfig.names,
    "streamArn": cf.StreamsConfig.names,
    "applicationName": cf.CheckpointConfig.application,
    "tableName": cf.DynamoDbCheckpointConfig.table,
    "workerId": cf.LeaseConfig.worker_id,
    "workerIdentifier": cf.LeaseConfig.worker_id,
    "failoverTimeMillis": cf.LeaseConfig.failover_seconds,
    "gracefulLeaseHandoffTimeoutMillis": cf.LeaseConfig.handover_seconds,
    "maxLeasesForWorker": cf.LeaseConfig.max_leases,
    "shardSyncIntervalMillis": cf.DiscoveryConfig.interval_seconds,
    "initialPositionInStream": cf.InitialPositionConfig.position,
    "initialPositionInStreamExtended": cf.InitialPositionConfig.timestamp.text,
    "regionName": cf.AwsConfig.region,
    "kinesisEndpoint": cf.AwsConfig.endpoint_url,
    "dynamoDBEndpoint": cf.DynamoDbCheckpointConfig.endpoint_url,
    "maxRecords": cf.PollingConfig.max_records,
    "idleTimeBetweenReadsInMillis": cf.PollingConfig.interval_seconds,
    "fanoutConfig.consumerName": cf.RegistrationConfig.consumer_name,
    # The option is that of the stream.
    _CONSUMER_ARN: cf.RegistrationConfig.consumer_arn,
}
_UNUSED: Final = {
    "this package does not need it": (
        "processingLanguage maxActiveThreads maxLeaseRenewalThreads maxGetRecordsThreadPool "
        "parentShardPollIntervalMillis cleanupLeasesUponShardCompletion skipShardSync* "
        "ignoreUnexpectedChildShards validateSequenceNumberBeforeCheckpointing "
        "leaseTableScanTotalSegments millisBehindLatestThresholdForReducedTps"
    ),
    "calls are repeated by kinesis.retry.outagemillis": (
        "taskBackoffTimeMillis listShardsBackoffTimeInMillis maxListShardsRetryAttempts "
        "schedulerInitializationBackoffTimeMillis retryGetRecordsInSeconds fanoutConfig.max* "
        "fanoutConfig.re*"
    ),
    "kinesis.metrics.* and kinesis.processing.slow-after say what is reported": (
        "metricsBufferTimeMillis metricsMaxQueueSize metricsEnabledDimensions "
        "logWarningForTaskAfterMillis"
    ),
    "a table is created as kinesis.checkpoint.dynamodb.* says": "initialLeaseTable* leaseTable*",
    "only the KCL shares shards out by it": (
        "maxLeasesToStealAtOneTime enablePriorityLeaseAssignment shardPrioritization "
        "clientVersionConfig leaseAssignmentIntervalMillis isGracefulLeaseHandoffEnabled "
        "disableWorkerMetrics maxThroughputPerHostKBps dampeningPercentage "
        "reBalanceThresholdPercentage allowThroughputOvershoot varianceBalancingFrequency "
        "inMemoryWorkerMetrics* workerMetrics* staleWorkerMetrics* "
        "noOfPersistedMetricsPerWorkerMetrics coordinatorState* migrateAllEntitiesToLeaseTable "
        "tableMigrationCompleteBakeTimeSeconds"
    ),
}
"""Reasons, and the names of the KCL that have no effect for them; ``*`` is any ending."""
_OF_POLLING: Final = (
    "maxRecords idleTimeBetweenReadsInMillis retryGetRecordsInSeconds maxGetRecordsThreadPool "
    "millisBehindLatestThresholdForReducedTps"
)
OF_DAEMON: Final[Mapping[str, cf.Option[Any]]] = {
    name: cf.Option(key=name, parser=parser, default=default, doc="")
    for name, parser, default in (
        (_EXECUTABLE, cf.Text(), ""),
        ("timeoutInSeconds", cf.WholeNumber(minimum=1), math.inf),
        # Kubernetes and ECS kill 30 seconds after SIGTERM. The KCL's own default leaves no time.
        ("shutdownGraceMillis", cf.WholeNumber(minimum=0), 20_000),
        ("callProcessRecordsEvenForEmptyRecordList", cf.Flag(), False),
        ("retrievalMode", cf.Text(pattern="(?i)FANOUT|POLLING|DEFAULT"), "DEFAULT"),
        ("metricsLevel", cf.Text(pattern="(?i)NONE|SUMMARY|DETAILED"), "NONE"),
    )
}
_PRECEDENCE: Final = {
    "streamName": "streamArn",
    "initialPositionInStream": "initialPositionInStreamExtended",
}
# The classes of the SDK for Java that botocore's chain covers.
_IN_CHAIN: Final = (
    "DefaultCredentialsProvider DefaultAWSCredentialsProviderChain ContainerCredentialsProvider "
    "InstanceProfileCredentialsProvider WebIdentityTokenFileCredentialsProvider"
)


@frozen(kw_only=True)
class DaemonConfig:
    """What a file of the MultiLangDaemon says.

    Attributes:
        properties: what is read, and how.
        command: the program that processes a shard, with its arguments.
        timeout_seconds: how long it may take to answer.
        grace_seconds: how long all processors together may take to stop.
        passes_empty: whether an answer without records is handed to the processor, too.
        unused: the keys that have no effect here.
    """

    properties: cf.Properties
    command: tuple[str, ...]
    timeout_seconds: float
    grace_seconds: float
    passes_empty: bool
    unused: tuple[IneffectiveKey, ...]


def daemon_config(pairs: Iterable[tuple[str, str]]) -> DaemonConfig:
    """Return what the properties of a MultiLangDaemon mean; keys of this package may be among them.

    Raises:
        ConfigErrors: names every value that is wrong, and every key that cannot be followed.
    """
    # As in the KCL, the last value of a key counts, and only one name is written as one likes.
    name = "(?i)^awsCredentialsProvider"
    given = {re.sub(name, _CREDENTIALS, key): one.strip() for key, one in pairs}
    found, unused = _translated(given)
    if not given.get(_EXECUTABLE):
        missing = MissingOptionError(f"{_EXECUTABLE} is missing: name your processor")
        found.problems.append(missing)
    values = {one.option.key: str(one.value) for one in found.found}
    if cf.CheckpointConfig.application.key not in values:
        # Every option of leases would be a problem without it.
        raise ConfigErrors([*found.problems, MissingOptionError("applicationName is missing")])
    for option, value in _defaults(given, values):
        if option.key not in values:
            found.add(option, option.full_key, value)
    properties = cf.Properties.from_assignments(found)
    own = {key: properties.get(option) for key, option in OF_DAEMON.items()}
    return DaemonConfig(
        properties=properties.with_values(dict.fromkeys(OF_DAEMON.values())),
        command=tuple(own[_EXECUTABLE].split()),
        timeout_seconds=own["timeoutInSeconds"],
        grace_seconds=own["shutdownGraceMillis"] / 1000,
        passes_empty=own["callProcessRecordsEvenForEmptyRecordList"],
        unused=tuple(unused),
    )


def properties_in(
    pairs: Sequence[tuple[str, str]], *, complete: bool
) -> tuple[cf.Properties, tuple[IneffectiveKey, ...]]:
    """Return the properties of a file, and its keys of a MultiLangDaemon without effect.

    A file that names an executable is that of a MultiLangDaemon. Raises ``ConfigErrors``.
    """
    if all(key != _EXECUTABLE for key, _ in pairs):
        return cf.Properties.from_pairs(pairs, complete=complete), ()
    config = daemon_config(pairs)
    return config.properties, config.unused


def _translated(given: Mapping[str, str]) -> tuple[cf.Assignments, list[IneffectiveKey]]:
    """Return the options that are ``given``, and the keys that have no effect."""
    found, unused = cf.Assignments(), list[IneffectiveKey]()
    stream = cf.stream_name_of(given.get("streamArn") or given.get("streamName", ""))
    for key, value in given.items():
        own = cf.find_option(key)
        option = own or MAPPED.get(key) or OF_DAEMON.get(key)
        if isinstance(option, OptionFamily):
            option = option.of(stream)
        if (own is None and not value) or given.get(_PRECEDENCE.get(key, "")):
            continue  # A name of the KCL without a value is not given.
        if option is not None:
            found.add(option, key, value)
        elif key.startswith("kinesis."):
            found.add_unknown(key, cf.nearest_key(key))
        elif key.startswith(("kinesisClient.", "dynamoDbClient.", "cloudWatchClient.")):
            found.add_moved(key, "it configures a client of Java. Remove it")
        elif not key.startswith(_CREDENTIALS):
            unused.append(IneffectiveKey(key=key, reason=_reason(key)))
    _refuse_another_region(given, found)
    try:
        for option, value in _credentials(given):
            found.add(option, _CREDENTIALS, value)
    except InvalidOptionError as error:
        found.problems.append(error)
    return found, unused


def _refuse_another_region(given: Mapping[str, str], options: cf.Assignments) -> None:
    """Refuse an ARN in another region than ``regionName``: the KCL reads another stream."""
    arn, region = given.get("streamArn", ""), given.get("regionName", "")
    has_endpoint = any(one.option == cf.AwsConfig.endpoint_url for one in options.found)
    if not (region and cf.source_of(arn)) or has_endpoint:
        return
    name, other = cf.stream_name_of(arn), region_of(arn)
    if other != region.lower():
        # The general error would not say what the KCL does.
        options.found = [one for one in options.found if one.written_key != "regionName"]
        options.problems.append(
            InvalidOptionError(
                f"streamArn is in {other}, but regionName is {region}: the KCL takes only the name "
                f"of the ARN, and reads {name} in {region}. To read that stream, set streamName = "
                f"{name} in place of streamArn; to read the stream of the ARN, set regionName = "
                f"{other}"
            )
        )


def _defaults(
    given: Mapping[str, str], values: Mapping[str, str]
) -> Iterator[tuple[cf.Option[Any], cf.Scalar]]:
    """Yield the KCL's defaults where they differ, and what its settings mean in addition.

    ``values`` are those of the options that are given, by their keys.
    """
    application = values[cf.CheckpointConfig.application.key]
    yield cf.LeaseConfig.is_enabled, "true"
    yield cf.CheckpointConfig.store, "dynamodb"
    if cf.InitialPositionConfig.timestamp.text.key in values:
        yield cf.InitialPositionConfig.position, PositionType.AT_TIMESTAMP.value
    if given.get("metricsLevel", "").upper() not in ("", "NONE"):
        yield cf.MetricsConfig.sinks, "log,cloudwatch"
        yield cf.MetricsConfig.cloudwatch_namespace, application
    mode = given.get("retrievalMode", "").upper() or "DEFAULT"
    # The KCL's rule: any setting of polling chooses polling.
    polls = any(given.get(name) not in (None, "", "0") for name in _OF_POLLING.split())
    if mode == cf.POLLING.name or (mode == "DEFAULT" and polls):
        yield cf.SourceConfig.record_publisher, cf.POLLING.name
        # The KCL's default; this package polls more often.
        yield cf.PollingConfig.interval_seconds, 1500
        return
    registration = cf.RegistrationConfig
    yield cf.SourceConfig.record_publisher, cf.EFO.name
    yield registration.deregister, cf.DeregistrationPolicy.NEVER.value
    if given.get(_CONSUMER_ARN):
        yield registration.strategy, cf.RegistrationStrategy.NONE.value
    else:
        yield registration.consumer_name, application


def _reason(key: str) -> str:
    """Return why a key has no effect here."""
    for reason, names in _UNUSED.items():
        if any(fnmatchcase(key, name) for name in names.split()):
            return reason
    near = difflib.get_close_matches(key, [*MAPPED, *OF_DAEMON], n=1)
    return "the KCL has no such property" + "".join(f"; did you mean {one}?" for one in near)


def _credentials(given: Mapping[str, str]) -> Iterator[tuple[cf.Option[Any], str]]:
    """Yield the options that mean the providers of credentials of the SDK for Java."""
    named = {key: value for key, value in given.items() if key.startswith(_CREDENTIALS) and value}
    if others := [key for key, value in named.items() if value != named.get(_CREDENTIALS)]:
        raise InvalidOptionError(
            f"{others[0]}: one provider, {_CREDENTIALS}, serves all services here; remove it"
        )
    providers = [one.strip() for one in next(iter(named.values()), "").split(",") if one.strip()]
    names = [one.split("|")[0].rpartition(".")[2] for one in providers]
    environment = "EnvironmentVariableCredentialsProvider"
    unchained = {*names} - {*_IN_CHAIN.split()}
    if not unchained or (len(names) > 1 and unchained == {environment}):
        return
    own, provider, arguments = cf.CredentialsConfig, cf.CredentialsProvider, providers[0].split("|")
    if names == [environment]:
        yield own.provider_option, provider.ENV_VAR.value
    elif names == ["ProfileCredentialsProvider"]:
        yield own.provider_option, provider.PROFILE.value
        yield from ((own.profile_name, name) for name in arguments[1:2])
    elif names == ["StsAssumeRoleCredentialsProvider"] and len(arguments) == 3:
        yield own.provider_option, provider.ASSUME_ROLE.value
        yield from zip((own.role_arn, own.role_session_name), arguments[1:], strict=True)
    else:
        # Not the value: it may have secrets as arguments.
        raise InvalidOptionError(
            f"{_CREDENTIALS}: {', '.join(names)} is not known here, or not with these arguments; "
            f"remove it and set {own.provider_option.full_key}"
        )
