"""Commands for topics, their messages, groups and pipelines."""
