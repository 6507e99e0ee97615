"""What waits on an event loop without a thread of its own: publishes for their commit, readers for messages."""
