"""What YDB's SDK reaches, and what its messages cost the server."""
