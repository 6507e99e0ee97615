"""Storage: where topics, groups and messages are kept. The engine is chosen by the store's URL."""
