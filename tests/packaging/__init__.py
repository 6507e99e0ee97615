"""What is in packaging/, and the files of containers at the root."""
