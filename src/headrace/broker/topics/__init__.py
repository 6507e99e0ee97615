"""Topics: created, found, altered, deleted; one topic at work."""
