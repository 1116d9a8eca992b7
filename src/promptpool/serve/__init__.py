"""A classifier behind HTTP: it answers while it learns. Needs `pip install 'promptpool[serve]'`."""
