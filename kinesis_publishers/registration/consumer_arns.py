"""What the ARN of a stream consumer says, and what a person does with it.

``arn:aws:kinesis:<region>:<account>:stream/<stream>/consumer/<name>:<created>``
"""

from __future__ import annotations

__all__ = [
    "consumer_name_in",
    "deregister_by_name_command",
    "deregister_command",
    "stream_arn_of",
    "stream_name_in",
]


def stream_arn_of(consumer_arn: str) -> str:
    """Return the ARN of the stream on which a consumer is registered."""
    return consumer_arn.partition("/consumer/")[0]


def consumer_name_in(consumer_arn: str) -> str:
    """Return the name of a consumer."""
    return consumer_arn.partition("/consumer/")[2].rpartition(":")[0]


def stream_name_in(stream_arn: str) -> str:
    """Return the name of the stream with this ARN."""
    return stream_arn.rpartition("/")[2]


def deregister_command(consumer_arn: str) -> str:
    """Return the command that removes a consumer."""
    return f"{_command(consumer_arn)} --consumer-arn {consumer_arn}"


def deregister_by_name_command(stream_arn: str, consumer_name: str) -> str:
    """Return the command that removes a consumer whose ARN is not known."""
    return f"{_command(stream_arn)} --stream-arn {stream_arn} --consumer-name {consumer_name}"


def _command(arn: str) -> str:
    region = arn.split(":", 4)[3]
    return f"aws kinesis deregister-stream-consumer --region {region}"
