import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import software.amazon.kinesis.exceptions.InvalidStateException;
import software.amazon.kinesis.exceptions.ShutdownException;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/** Prints, and checkpoints every n-th record and at the end; never if n is 0. */
final class PrintingProcessor implements ShardRecordProcessor {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final int checkpointEvery;
    private String shard;
    private int count;

    PrintingProcessor(int checkpointEvery) {
        this.checkpointEvery = checkpointEvery;
    }

    static synchronized void print(String event, Map<String, ?> details) {
        Map<String, Object> line = new LinkedHashMap<>(Map.of("event", event));
        line.putAll(details);
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void initialize(InitializationInput input) {
        shard = input.shardId();
        var start = input.extendedSequenceNumber();
        show("initialized", Map.of("sequence", start.sequenceNumber(), "sub", start.subSequenceNumber()));
    }

    @Override
    public void processRecords(ProcessRecordsInput input) {
        for (KinesisClientRecord record : input.records()) {
            show("record", described(record));
            count++;
            if (checkpointEvery > 0 && count % checkpointEvery == 0) {
                checkpoint(() -> input.checkpointer().checkpoint(record.sequenceNumber(), record.subSequenceNumber()));
            }
        }
    }

    @Override
    public void leaseLost(LeaseLostInput input) {
        show("leaseLost", Map.of());
    }

    @Override
    public void shardEnded(ShardEndedInput input) {
        show("shardEnded", Map.of());
        checkpoint(input.checkpointer()::checkpoint);
    }

    @Override
    public void shutdownRequested(ShutdownRequestedInput input) {
        show("shutdownRequested", Map.of());
        if (checkpointEvery > 0) {
            checkpoint(input.checkpointer()::checkpoint);
        }
    }

    private void checkpoint(Checkpointing call) {
        try {
            call.run();
        } catch (InvalidStateException | ShutdownException error) {
            show("checkpointFailed", Map.of("error", error.toString()));
        }
    }

    private void show(String event, Map<String, ?> details) {
        Map<String, Object> line = new LinkedHashMap<>(Map.of("shard", shard));
        line.putAll(details);
        print(event, line);
    }

    private static Map<String, Object> described(KinesisClientRecord record) {
        ByteBuffer data = record.data().duplicate();
        byte[] octets = new byte[data.remaining()];
        data.get(octets);
        return Map.of(
                "sequence", record.sequenceNumber(),
                "sub", record.subSequenceNumber(),
                "key", record.partitionKey(),
                "data", Base64.getEncoder().encodeToString(octets));
    }

    private interface Checkpointing {
        void run() throws InvalidStateException, ShutdownException;
    }
}
