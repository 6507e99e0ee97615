"""The page of a topic: a module for each of its tabs."""
