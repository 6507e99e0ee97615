"""Requests and responses of the Kafka protocol to and from bytes, by the schemas of kio."""
