"""Commands that run a server and show how it is doing."""
