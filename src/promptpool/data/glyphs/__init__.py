"""Drawn data that needs no download: characters in the fonts that come with matplotlib."""

from promptpool.data.glyphs.sets import glyph_five, glyph_styles, glyphs100

__all__ = ["glyph_five", "glyph_styles", "glyphs100"]
