"""What both ends of the Flight protocol agree on: operations, tickets, errors. No I/O, and nothing of either end."""
