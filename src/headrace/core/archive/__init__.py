"""The archive of a topic: what its manifest says, and the decisions of maintenance about it."""
