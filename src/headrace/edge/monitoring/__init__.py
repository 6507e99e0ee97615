"""The state of a server for those who watch it: who calls it, and its process from inside."""
