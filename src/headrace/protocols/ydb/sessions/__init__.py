"""Sessions: streams that write or read."""
