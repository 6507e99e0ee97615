"""The doctor: checks a store that no server has open."""
