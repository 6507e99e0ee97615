"""The parts of `produce` and `consume`: lines in, messages out."""
