"""Topics: the registry of all topics, and one open topic."""
