"""The files of the disk engine, and the only module that touches the operating system."""
