"""Formats of payloads in both directions, and the spans that go with values."""

from kinesis_publishers.formats.avro_records import avro as avro
from kinesis_publishers.formats.cloud_events import CloudEvent as CloudEvent
from kinesis_publishers.formats.format import Decoder as Decoder
from kinesis_publishers.formats.format import Encoder as Encoder
from kinesis_publishers.formats.format import Format as Format
from kinesis_publishers.formats.glue_registry import GlueSchema as GlueSchema
from kinesis_publishers.formats.glue_registry import glue as glue
from kinesis_publishers.formats.glue_registry import glue_schema as glue_schema
from kinesis_publishers.formats.named import decoder_of as decoder_of
from kinesis_publishers.formats.named import encoder_of as encoder_of
from kinesis_publishers.formats.named import gzip as gzip
from kinesis_publishers.formats.named import protobuf as protobuf
from kinesis_publishers.formats.named import zstd as zstd
from kinesis_publishers.formats.tracing import open_tracing as open_tracing
