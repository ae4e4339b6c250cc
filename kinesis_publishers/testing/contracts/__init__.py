"""What every implementation of an interface must do, as test classes to subclass."""

from kinesis_publishers.testing.contracts.checkpoint_store import CheckpointStoreContract

__all__ = ["CheckpointStoreContract"]
