"""Messages: reading the newest, searching a whole topic, showing values of any kind."""
