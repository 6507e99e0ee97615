"""What a topic is set to: its settings, and what retention follows from them."""
