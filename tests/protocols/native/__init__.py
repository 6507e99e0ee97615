"""The native wire, with real sockets."""
