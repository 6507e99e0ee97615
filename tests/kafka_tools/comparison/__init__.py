"""Headrace beside Apache Kafka, request by request."""
