"""Hashes of whole Arrow columns: FNV-1a and digests, and Kafka's Murmur2."""
