"""Schemas from DDL, for which Spark itself would need a session."""

from __future__ import annotations

from pyspark.sql.types import StructType


def struct_type(ddl: str) -> StructType:
    """Return the schema of flat columns in the types that the source has."""
    schema = StructType()
    names = {"bigint": "long", "timestamp_ltz": "timestamp"}
    for column in ddl.split(", "):
        name, type_name = column.split(" ")
        schema = schema.add(name, names.get(type_name, type_name))
    return schema
