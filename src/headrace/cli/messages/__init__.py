"""Lines in, messages out: what `produce` and `consume` are built from."""
