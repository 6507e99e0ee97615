"""Reading: consumers in groups, prefetch, following, scans."""
