"""What happens to every request before its route: limits, access."""
