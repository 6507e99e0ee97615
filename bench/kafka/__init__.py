"""Benchmarks of the Kafka protocol."""
