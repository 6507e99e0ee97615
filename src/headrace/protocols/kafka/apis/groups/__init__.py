"""APIs of groups: membership, offsets and administration."""
