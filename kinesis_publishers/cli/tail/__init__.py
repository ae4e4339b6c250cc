"""``kinesis-publishers tail``: shows what is being read from streams."""
