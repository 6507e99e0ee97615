"""Middleware: limits and access checks before every route."""
