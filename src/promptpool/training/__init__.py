"""How a learner goes through a stream."""
