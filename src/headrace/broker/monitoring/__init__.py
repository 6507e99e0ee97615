"""The state of a broker for those who watch it: metrics, its own health, and checks of its store."""
