"""What administrators ask about servers: what they store, and the replicas that they do not have."""
