"""The Arrow Flight server: the fast path for batches. A thin layer over the broker."""
