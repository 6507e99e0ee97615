"""The client and the Flight server: `headrace serve` as a process, clients in processes of their own."""
