"""Opening a store: scan, recovery after a crash, repair."""
