"""The network edge: what every protocol does with unchecked input: access control, Arrow validation, waiting."""
