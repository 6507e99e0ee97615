"""How fast the archive is written, merged and read: messages per second of CPU, and memory beyond the mapped log."""
