"""The Arrow Flight server: the fast way in and out. A thin layer over the broker."""
