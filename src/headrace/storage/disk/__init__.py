"""The embedded disk engine: a log of frames per topic, SQLite for the catalog. docs/format.md has the bytes."""
