"""Sending: `Producer` buffers, `Sender` delivers and retries, futures tell the outcome."""
