"""Publishing: a queue per topic, group commit, producers."""
