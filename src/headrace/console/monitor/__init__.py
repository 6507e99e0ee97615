"""What the broker measures: samples of /metrics, their history, and what needs attention."""
