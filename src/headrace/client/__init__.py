"""The client: connect, produce, consume, administer, over Arrow Flight."""
