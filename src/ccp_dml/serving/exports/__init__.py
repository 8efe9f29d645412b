"""A run as files for other machines and programs."""
