"""Reading without a group: scans, tables, following, and decoding what was read."""
