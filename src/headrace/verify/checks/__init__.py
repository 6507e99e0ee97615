"""The promises, each checked on a history."""
