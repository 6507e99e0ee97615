"""The memory engine: everything gone at close. It is the model that the other engines are compared with."""
