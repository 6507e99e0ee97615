"""`headrace verify`: many clients against a server, their history, and the check of it; on the client only."""
