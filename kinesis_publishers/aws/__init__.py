"""Talks to AWS: clients, credentials, error mapping, decoding, and what PutRecords takes."""

from kinesis_publishers.aws.control_plane import Boto3ControlPlane
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.aws.decoding import decode_get_records
from kinesis_publishers.aws.record_writer import Boto3RecordWriter, PutResult

__all__ = [
    "AioDataPlane",
    "Boto3ControlPlane",
    "Boto3RecordWriter",
    "PutResult",
    "decode_get_records",
]
