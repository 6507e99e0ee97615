"""Reading topics: planning in the driver, splits in tasks."""
