"""``python -m kinesis_publishers.readers.guard``: started by a reader, not by hand."""

from kinesis_publishers.readers.guard.process import main

main()
