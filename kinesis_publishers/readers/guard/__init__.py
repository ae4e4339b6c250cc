"""The guard process: removes the stream consumers of a reader that may be killed at any time.

Spark ends the reading process with SIGKILL. The guard holds a lease on each consumer while that
process lives, and is the last to leave: it removes what this application has registered.
"""

from kinesis_publishers.readers.guard.guard import ConsumerGuard as ConsumerGuard
