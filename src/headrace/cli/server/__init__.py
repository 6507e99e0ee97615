"""The server process: its settings, logs and signals."""
