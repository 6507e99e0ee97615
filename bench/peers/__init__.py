"""Headrace beside Redis Streams, NATS JetStream and Apache Kafka: the same work, each through its own Python client."""
