"""What pages are made of: text, charts, tables and the frame around them."""
