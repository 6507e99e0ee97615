"""The HTTP server under load from another process, beside the same server answering an empty POST."""
