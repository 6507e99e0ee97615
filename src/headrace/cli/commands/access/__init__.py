"""Commands for tokens and profiles."""
