import java.net.URI;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisClient;
import software.amazon.awssdk.services.kinesis.model.GetShardIteratorRequest;
import software.amazon.awssdk.services.kinesis.model.PutRecordsRequestEntry;
import software.amazon.awssdk.services.kinesis.model.Record;
import software.amazon.awssdk.services.kinesis.model.ResourceNotFoundException;
import software.amazon.awssdk.services.kinesis.model.ShardIteratorType;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardEvent;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardResponseHandler;

/**
 * Writes to and reads from a stream as any program in Java does, and prints what it sees.
 *
 * <p>Arguments: the endpoint, the name of a stream with one shard, the ARN of a consumer of it.
 */
public final class ReadAndWrite {
    private final KinesisClient client;
    private final KinesisAsyncClient asyncClient;
    private final String stream;

    private ReadAndWrite(URI endpoint, String stream) {
        this.client = KinesisClient.builder().endpointOverride(endpoint).build();
        this.asyncClient = KinesisAsyncClient.builder().endpointOverride(endpoint).build();
        this.stream = stream;
    }

    public static void main(String[] arguments) throws Exception {
        ReadAndWrite program = new ReadAndWrite(URI.create(arguments[0]), arguments[1]);
        Instant start = Instant.now().minusSeconds(60);
        program.describe(start);
        program.write();
        String shard = program.client.listShards(r -> r.streamName(program.stream)).shards().get(0).shardId();
        program.read(r -> r.shardId(shard).shardIteratorType(ShardIteratorType.TRIM_HORIZON));
        program.read(r -> r.shardId(shard).shardIteratorType(ShardIteratorType.AT_TIMESTAMP).timestamp(start));
        program.subscribe(shard, arguments[2], start);
        program.fail();
        System.out.println("done");
        System.exit(0);
    }

    private void describe(Instant start) {
        var summary = client.describeStreamSummary(r -> r.streamName(stream)).streamDescriptionSummary();
        boolean isRecent = summary.streamCreationTimestamp().isAfter(start);
        System.out.println("stream " + summary.streamStatusAsString() + " recent=" + isRecent);
    }

    private void write() {
        client.putRecord(r -> r.streamName(stream).partitionKey("k").data(SdkBytes.fromUtf8String("one")));
        PutRecordsRequestEntry entry = PutRecordsRequestEntry.builder()
                .partitionKey("k")
                .data(SdkBytes.fromByteArray(new byte[] {0, (byte) 0xff}))
                .build();
        System.out.println("failed " + client.putRecords(r -> r.streamName(stream).records(entry)).failedRecordCount());
    }

    private void read(java.util.function.Consumer<GetShardIteratorRequest.Builder> where) {
        String iterator = client.getShardIterator(r -> where.accept(r.streamName(stream))).shardIterator();
        System.out.println("read " + shown(client.getRecords(r -> r.shardIterator(iterator)).records()));
    }

    private void subscribe(String shard, String consumerArn, Instant start) throws Exception {
        CompletableFuture<SubscribeToShardEvent> first = new CompletableFuture<>();
        SubscribeToShardResponseHandler handler = SubscribeToShardResponseHandler.builder()
                .onError(first::completeExceptionally)
                .subscriber(SubscribeToShardResponseHandler.Visitor.builder()
                        .onSubscribeToShardEvent(first::complete)
                        .build())
                .build();
        CompletableFuture<Void> call = asyncClient.subscribeToShard(
                r -> r.consumerARN(consumerArn)
                        .shardId(shard)
                        .startingPosition(p -> p.type(ShardIteratorType.AT_TIMESTAMP).timestamp(start)),
                handler);
        call.whenComplete((nothing, error) -> {
            if (error != null) {
                first.completeExceptionally(error);
            }
        });
        SubscribeToShardEvent event = first.get(30, TimeUnit.SECONDS);
        System.out.println("event " + shown(event.records()) + " behind " + event.millisBehindLatest());
    }

    private void fail() {
        try {
            client.listShards(r -> r.streamName("unheard"));
        } catch (ResourceNotFoundException error) {
            System.out.println("refused " + error.awsErrorDetails().errorCode());
        }
    }

    private static String shown(List<Record> records) {
        StringBuilder text = new StringBuilder();
        for (Record record : records) {
            boolean isRecent = record.approximateArrivalTimestamp().isAfter(Instant.now().minusSeconds(60));
            text.append(record.partitionKey()).append('=');
            for (byte octet : record.data().asByteArray()) {
                text.append(String.format("%02x", octet));
            }
            text.append(isRecent ? " " : " old ");
        }
        return text.toString().trim();
    }
}
