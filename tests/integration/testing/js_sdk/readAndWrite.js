// Writes to and reads from a stream as any program in JavaScript does, and prints what it sees.
// Arguments: the endpoint, the name of a stream with one shard, the ARN of a consumer of it.
import { Kinesis } from "@aws-sdk/client-kinesis";

const [endpoint, StreamName, ConsumerARN] = process.argv.slice(2);
const client = new Kinesis({ endpoint });
const shown = (records) => records.map((one) => Buffer.from(one.Data).toString()).join(" ");

async function put(text) {
  const Records = [{ PartitionKey: "k", Data: Buffer.from(text) }];
  const { FailedRecordCount } = await client.putRecords({ StreamName, Records });
  if (FailedRecordCount) throw new Error("refused");
}

const { ShardId } = (await client.listShards({ StreamName })).Shards[0];
await put("one");
const start = { StreamName, ShardId, ShardIteratorType: "TRIM_HORIZON" };
const { ShardIterator } = await client.getShardIterator(start);
console.log("read", shown((await client.getRecords({ ShardIterator })).Records));

const StartingPosition = { Type: "TRIM_HORIZON" };
const { EventStream } = await client.subscribeToShard({ ConsumerARN, ShardId, StartingPosition });
// The SDK has said GOAWAY by the first event: the others come afterwards.
let received = 0;
for await (const { SubscribeToShardEvent: event } of EventStream) {
  if (!event.Records.length) continue;
  console.log("event", shown(event.Records));
  received += 1;
  if (received === 50) break;
  await put(`after ${received}`);
}
await client.listShards({ StreamName: "unheard" }).catch((error) => console.log("refused", error.name));
process.exit(0);
