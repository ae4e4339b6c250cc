"""``kinesis-publishers put``: writes a few records, for trying things out."""
