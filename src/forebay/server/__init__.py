"""The front door: HTTP in front of a broker."""
