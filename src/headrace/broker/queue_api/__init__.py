"""What the PgQueue HTTP API needs: registered consumers and producers, one order over all partitions."""
