"""Consumer groups: the rules of the core applied and stored."""
