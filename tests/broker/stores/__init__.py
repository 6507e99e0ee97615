"""Stores that earlier versions wrote, kept as bytes, and the program that writes one."""
