"""Sending: `Producer` buffers, `Sender` delivers and retries, futures have the outcome."""
