"""Images of one's own, in the layouts that people have them in."""
