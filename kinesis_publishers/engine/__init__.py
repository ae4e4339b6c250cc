"""Reads single shards and delivers their records, within a shared budget of memory."""
