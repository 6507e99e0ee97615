"""Headrace beside Redis Streams and NATS JetStream: the same work, in one run, each through its usual Python client."""
