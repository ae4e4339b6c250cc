// A processor for the KCL's client for Node.js: says each record, and checkpoints at it.
const kcl = require('aws-kcl');

const say = (text) => process.stderr.write(`${text}\n`);

kcl({
  initialize: (input, done) => {
    say(`begin ${input.shardId} ${input.sequenceNumber}`);
    done();
  },
  processRecords: async (input, done) => {
    for (const record of input.records) {
      say(`record ${Buffer.from(record.data, 'base64')}`);
      await new Promise((resolve) => {
        input.checkpointer.checkpoint(record.sequenceNumber, (error) => {
          say(`checkpoint ${error}`);
          resolve();
        });
      });
    }
    done();
  },
  leaseLost: (input, done) => {
    say('leaseLost');
    done();
  },
  shardEnded: (input, done) => {
    input.checkpointer.checkpoint((error) => {
      say(`end ${error}`);
      done();
    });
  },
  shutdownRequested: (input, done) => {
    say('shutdownRequested');
    done();
  },
}).run();
