"""What every protocol shares where the network begins."""
