"""Reads one shard at a time and delivers what it reads, within a shared budget of memory."""
