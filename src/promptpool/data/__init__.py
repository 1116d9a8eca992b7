"""Streams of examples and how they reach a model."""
