"""``kinesis-publishers consumers``: stream consumers, for those who register them by hand."""
