"""Fault tests, named by the fault: what happens to a store when the process, the disk or the machine fails."""
