"""``kinesis-publishers tail``: reads streams and shows what arrives."""
