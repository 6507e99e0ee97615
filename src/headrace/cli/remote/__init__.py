"""The server that a command talks to: which one, and the client of it."""
