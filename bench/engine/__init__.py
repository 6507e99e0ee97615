"""The engine in process: publishing, reading, opening, memory, each beside the limit of this machine."""
