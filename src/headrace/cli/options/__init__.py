"""Options of commands: those that several share, how their values are read, and completion in a shell."""
