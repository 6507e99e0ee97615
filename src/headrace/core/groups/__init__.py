"""The rules of consumer groups: members, generations, assignment, commits of offsets."""
