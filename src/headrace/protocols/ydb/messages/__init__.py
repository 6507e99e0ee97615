"""Messages as rows: bounded decoding of what clients write, and responses with what they read."""
