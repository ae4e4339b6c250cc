"""Reads streams: endlessly, up to given ends, or by ranges that were fixed before."""
