"""Reading: readers of many partitions, feeds of followers, wake-ups."""
