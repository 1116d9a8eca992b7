"""One reader per published format, straight from the publishers' own files."""
