"""Support for the PgQueue HTTP API: registered consumers and producers, one order over all partitions."""
