"""``kinesis-publishers demo``: real data through Kinesis into Spark, all checked."""
