"""A pipeline as its author writes it: the file, its keys and its tests."""
