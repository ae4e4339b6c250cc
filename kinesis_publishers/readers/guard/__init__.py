"""The guard process, which removes the stream consumers of a reader that is killed, as by Spark.

It holds a lease on each while the reader lives, and is the last to leave.
"""

from kinesis_publishers.readers.guard.guard import ConsumerGuard as ConsumerGuard
