"""The server: the servers of the store, who is connected, a check of the store, and the settings of each server."""
