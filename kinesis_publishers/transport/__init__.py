"""Talks to AWS: clients, error mapping and decoding. Retries nothing."""

from kinesis_publishers.transport.control_plane import Boto3ControlPlane
from kinesis_publishers.transport.data_plane import AioDataPlane
from kinesis_publishers.transport.decoding import decode_get_records
from kinesis_publishers.transport.record_writer import Boto3RecordWriter, PutResult

__all__ = [
    "AioDataPlane",
    "Boto3ControlPlane",
    "Boto3RecordWriter",
    "PutResult",
    "decode_get_records",
]
