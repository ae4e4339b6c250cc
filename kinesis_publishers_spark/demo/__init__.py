"""``kinesis-publishers demo``: real data through Kinesis into Spark, all checked."""


class DemoError(Exception):
    """The demo cannot continue; the message says why."""
