"""Which shards a process reads: all of them, some, or those that it has leases on."""
