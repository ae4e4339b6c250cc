"""The guard process: removes the stream consumers of a reader that may be killed at any time.

Spark ends the process that reads with SIGKILL, so that nothing in it can tear down. The guard holds
a lease on each consumer for as long as that process lives, and is its last holder: it removes what
this application registered once nobody reads any more.
"""

from kinesis_publishers.readers.guard.guard import ConsumerGuard

__all__ = ["ConsumerGuard"]
