"""Talks to AWS: clients, credentials, error mapping, decoding, and PutRecords.

The package exports nothing: using one part does not load the SDK for the others.
"""
