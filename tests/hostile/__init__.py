"""What hostile callers may cost a real server with tokens, and what others notice of it."""
