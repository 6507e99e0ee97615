"""Reading: consumers, group membership, prefetch, following, scans."""
