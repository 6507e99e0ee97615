"""What people see: help, tables, errors and progress."""
