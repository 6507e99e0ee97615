"""The PostgreSQL engine: topics in tables of a database that any number of servers share."""
