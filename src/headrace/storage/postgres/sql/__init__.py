"""Tables, views and functions in the database."""
