"""The sections of the configuration: each field of a class declares one option."""
