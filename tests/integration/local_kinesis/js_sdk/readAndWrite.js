// Writes to and reads from a stream as any program in JavaScript does, and prints what it sees.
// Arguments: the endpoint, the name of a stream with one shard, the ARN of a consumer of it.
import {
  GetRecordsCommand,
  GetShardIteratorCommand,
  KinesisClient,
  ListShardsCommand,
  PutRecordsCommand,
  SubscribeToShardCommand,
} from "@aws-sdk/client-kinesis";

const [endpoint, StreamName, ConsumerARN] = process.argv.slice(2);
const client = new KinesisClient({ endpoint });
const shown = (records) => records.map((one) => Buffer.from(one.Data).toString()).join(" ");

async function put(text) {
  const Records = [{ PartitionKey: "k", Data: Buffer.from(text) }];
  const answer = await client.send(new PutRecordsCommand({ StreamName, Records }));
  if (answer.FailedRecordCount) throw new Error("refused");
}

const { Shards } = await client.send(new ListShardsCommand({ StreamName }));
const { ShardId } = Shards[0];
await put("one");
const start = { StreamName, ShardId, ShardIteratorType: "TRIM_HORIZON" };
const { ShardIterator } = await client.send(new GetShardIteratorCommand(start));
const { Records } = await client.send(new GetRecordsCommand({ ShardIterator }));
console.log("read", shown(Records));

const StartingPosition = { Type: "TRIM_HORIZON" };
const request = { ConsumerARN, ShardId, StartingPosition };
const { EventStream } = await client.send(new SubscribeToShardCommand(request));
// The SDK has said GOAWAY by the first event: the others come afterwards.
let received = 0;
for await (const { SubscribeToShardEvent: event } of EventStream) {
  if (!event.Records.length) continue;
  console.log("event", shown(event.Records));
  received += 1;
  if (received === 50) break;
  await put(`after ${received}`);
}
try {
  await client.send(new ListShardsCommand({ StreamName: "unheard" }));
} catch (error) {
  console.log("refused", error.name);
}
process.exit(0);
