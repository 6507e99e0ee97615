"""Reading: many partitions in turn, subscriptions, wake-ups."""
