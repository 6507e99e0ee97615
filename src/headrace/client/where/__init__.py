"""Conditions that choose messages, for the console, the command line and programs: `value.amount > 100`."""
