"""Pre-trained models in two halves."""
