"""Talks to AWS: clients, credentials, error mapping, decoding, and what PutRecords takes.

It names nothing itself: what uses one part does not load the SDK for the others.
"""
