"""Continual learning with a pool of prompts."""

__version__ = "0.1.0"
