"""Avro: schemas of records, and values in its binary encoding as columns."""
