"""The memory engine: nothing survives a close. It is the model that the other engines are compared with."""
