"""What clients did and saw, as events in a file."""
