"""Members of consumer groups by Kafka's classic protocol, in which one member assigns the partitions for all."""
