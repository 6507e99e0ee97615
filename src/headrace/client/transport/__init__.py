"""Transports to a broker: Arrow Flight, or a broker in the same process."""
