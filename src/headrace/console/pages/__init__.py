"""A module for each page; `register_all` adds them to the application."""
