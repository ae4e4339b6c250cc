import java.io.IOException;
import java.net.URI;
import java.time.Instant;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.awscore.client.builder.AwsClientBuilder;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.common.KinesisClientUtil;
import software.amazon.kinesis.common.StreamConfig;
import software.amazon.kinesis.common.StreamIdentifier;
import software.amazon.kinesis.coordinator.CoordinatorConfig.ClientVersionConfig;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.leases.LeaseAssignmentStrategy;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.FormerStreamsLeasesDeletionStrategy;
import software.amazon.kinesis.processor.FormerStreamsLeasesDeletionStrategy.NoLeaseDeletionStrategy;
import software.amazon.kinesis.processor.MultiStreamTracker;
import software.amazon.kinesis.processor.SingleStreamTracker;
import software.amazon.kinesis.processor.StreamTracker;
import software.amazon.kinesis.retrieval.fanout.FanOutConfig;
import software.amazon.kinesis.retrieval.polling.PollingConfig;
import software.amazon.kinesis.worker.metric.OperatingRange;
import software.amazon.kinesis.worker.metric.impl.linux.LinuxCpuWorkerMetric;

/**
 * A worker of the Kinesis Client Library that prints what it is given, one JSON object in a line.
 *
 * <p>Arguments are {@code name=value}; {@code Settings} lists them. It shuts down gracefully on SIGTERM, and when its
 * standard input ends.
 */
public final class KclWorker {
    public static void main(String[] arguments) throws IOException {
        Settings settings = Settings.parse(arguments);
        Scheduler scheduler = scheduler(settings);
        Thread running = new Thread(scheduler, "scheduler");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(scheduler)));
        running.start();
        while (System.in.read() >= 0) {}
        System.exit(0);
    }

    private static void stop(Scheduler scheduler) {
        try {
            PrintingProcessor.print("stopped", Map.of("gracefully", scheduler.startGracefulShutdown().get()));
        } catch (Exception error) {
            PrintingProcessor.print("stopped", Map.of("error", error.toString()));
        }
    }

    private static Scheduler scheduler(Settings settings) {
        KinesisAsyncClient kinesis =
                KinesisClientUtil.createKinesisAsyncClient(local(KinesisAsyncClient.builder(), settings.kinesis));
        ConfigsBuilder configs = new ConfigsBuilder(
                settings.tracker(),
                settings.application,
                kinesis,
                local(DynamoDbAsyncClient.builder(), settings.dynamodb).build(),
                local(CloudWatchAsyncClient.builder(), settings.dynamodb).build(),
                settings.worker,
                () -> new PrintingProcessor(settings.checkpointEvery));
        var retrieval = configs.retrievalConfig();
        if (settings.fanOut) {
            retrieval.retrievalSpecificConfig(
                    new FanOutConfig(kinesis).applicationName(settings.application).streamName(settings.singleStream()));
        } else {
            retrieval.retrievalSpecificConfig(
                    new PollingConfig(kinesis).streamName(settings.singleStream()).idleTimeBetweenReadsInMillis(250));
        }
        var leases = configs.leaseManagementConfig()
                .failoverTimeMillis(settings.failoverMillis)
                .leaseAssignmentStrategy(settings.strategy)
                // It begins so long after it has filled an empty table.
                .shardSyncIntervalMillis(1000);
        // What it would choose on EC2, without asking EC2's metadata service.
        leases.workerUtilizationAwareAssignmentConfig()
                .workerMetricList(List.of(new LinuxCpuWorkerMetric(OperatingRange.builder().maxUtilization(100).build())));
        return new Scheduler(
                configs.checkpointConfig(),
                configs.coordinatorConfig()
                        .clientVersionConfig(settings.clientVersion)
                        .parentShardPollIntervalMillis(500)
                        .shardConsumerDispatchPollIntervalMillis(200),
                leases,
                configs.lifecycleConfig(),
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                retrieval);
    }

    private static <B extends AwsClientBuilder<B, ?>> B local(B builder, String endpoint) {
        var credentials = StaticCredentialsProvider.create(AwsBasicCredentials.create("local", "local"));
        return builder.endpointOverride(URI.create(endpoint)).region(Region.US_EAST_1).credentialsProvider(credentials);
    }

    /** What the arguments say; several streams are separated by commas, each {@code account:name:creation epoch}. */
    private record Settings(
            String kinesis,
            String dynamodb,
            String application,
            String worker,
            List<String> streams,
            InitialPositionInStreamExtended position,
            ClientVersionConfig clientVersion,
            LeaseAssignmentStrategy strategy,
            long failoverMillis,
            boolean fanOut,
            int checkpointEvery) {

        static Settings parse(String[] arguments) {
            Properties given = new Properties();
            Stream.of(arguments).map(one -> one.split("=", 2)).forEach(pair -> given.setProperty(pair[0], pair[1]));
            return new Settings(
                    given.getProperty("kinesis"),
                    given.getProperty("dynamodb"),
                    given.getProperty("application"),
                    given.getProperty("worker"),
                    List.of(given.getProperty("streams").split(",")),
                    position(given.getProperty("position", "TRIM_HORIZON")),
                    ClientVersionConfig.valueOf(
                            "CLIENT_VERSION_CONFIG_" + given.getProperty("version", "COMPATIBLE_WITH_2X")),
                    LeaseAssignmentStrategy.valueOf(given.getProperty("strategy", "WORKER_UTILIZATION_AWARE")),
                    Long.parseLong(given.getProperty("failover_millis", "10000")),
                    Boolean.parseBoolean(given.getProperty("fan_out", "false")),
                    Integer.parseInt(given.getProperty("checkpoint_every", "1")));
        }

        /** Returns TRIM_HORIZON, LATEST or the instant that the text is. */
        private static InitialPositionInStreamExtended position(String text) {
            return Character.isDigit(text.charAt(0))
                    ? InitialPositionInStreamExtended.newInitialPositionAtTimestamp(Date.from(Instant.parse(text)))
                    : InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.valueOf(text));
        }

        String singleStream() {
            return streams.size() == 1 ? streams.get(0) : null;
        }

        StreamTracker tracker() {
            if (singleStream() != null) {
                return new SingleStreamTracker(singleStream(), position);
            }
            List<StreamConfig> configs = streams.stream()
                    .map(name -> new StreamConfig(StreamIdentifier.multiStreamInstance(name), position))
                    .toList();
            return new MultiStreamTracker() {
                @Override
                public List<StreamConfig> streamConfigList() {
                    return configs;
                }

                @Override
                public FormerStreamsLeasesDeletionStrategy formerStreamsLeasesDeletionStrategy() {
                    return new NoLeaseDeletionStrategy();
                }
            };
        }
    }
}
