"""Exact ranges of shards: how far each shard may be read, and what reads a range."""
