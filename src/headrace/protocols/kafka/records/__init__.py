"""Record batches (format v2) to and from Arrow columns, without a Python loop over the fields of records."""
