"""The commands of the protocol: a module for each group of them, and the table of all."""
