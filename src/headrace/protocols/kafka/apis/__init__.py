"""The handlers of Kafka's APIs, a module for each group of them, and the table that names them."""
