"""The embedded disk engine: a log of frames per topic, SQLite for the catalog. docs/FORMAT.md has the bytes."""
