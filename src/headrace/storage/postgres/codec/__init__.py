"""Arrow columns to and from what PostgreSQL speaks."""
