"""Clients that people use, unmodified, with nothing but a base URL and a key."""
