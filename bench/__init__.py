"""Benchmarks. Each prints numbers, and ratios to a limit or a peer measured in the same run."""
