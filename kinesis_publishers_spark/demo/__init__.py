"""``kinesis-publishers demo``: real data through Kinesis into Spark, all checked."""

__all__ = ["DemoError"]


class DemoError(Exception):
    """The demo cannot continue; the message says why."""
