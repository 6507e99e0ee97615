"""The log of one topic in the database."""
