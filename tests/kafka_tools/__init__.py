"""Apache Kafka's own programs on a real `headrace serve`: `make test-kafka-tools`. They need Java and the jars."""
