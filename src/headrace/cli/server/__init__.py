"""A server as a process: its settings, its logs, its signals."""
