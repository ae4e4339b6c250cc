"""``kinesis-publishers put``: writes records that come from arguments, a file or a pipe."""
