"""Reading: readers of many partitions, subscriptions, wake-ups."""
