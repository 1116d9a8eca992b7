"""Runs by configuration."""
