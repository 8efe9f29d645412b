"""What can be promised of an embedding: how often a pair lies on the wrong side of a distance, and how sure that is."""
