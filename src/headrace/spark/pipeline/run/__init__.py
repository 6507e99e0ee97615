"""A run of a pipeline: what is checked before, kept beside the checkpoint, and told meanwhile."""
