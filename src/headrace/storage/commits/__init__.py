"""What all engines share of commits: the producers that may make them, and commits of several topics."""
