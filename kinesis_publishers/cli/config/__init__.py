"""``kinesis-publishers config``: what can be configured, and whether a file is right."""
