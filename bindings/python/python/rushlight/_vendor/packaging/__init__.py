"""``packaging``."""
