"""A trained network at work: load it, embed with it, export it."""
