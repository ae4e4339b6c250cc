"""``python -m kinesis_publishers.consumer_guard``: started by a reader, not by hand."""

from kinesis_publishers.consumer_guard.process import main

main()
