"""The command line: ``kinesis-publishers``."""
