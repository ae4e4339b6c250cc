"""``kinesis-publishers consumers``: stream consumers that an operator registers by hand."""
