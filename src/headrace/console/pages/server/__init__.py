"""The server: which servers share the store, a check of the store, and the settings of each server."""
