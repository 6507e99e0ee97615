"""Sending: `SendBuffer` collects, `BatchSender` sends and retries, futures have the outcome."""
