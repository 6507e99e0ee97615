"""Writing topics: staged by tasks, published once by the driver."""
