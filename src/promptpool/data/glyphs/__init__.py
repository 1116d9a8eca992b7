"""Drawn data that needs no download: characters in the fonts that come with matplotlib."""

from promptpool.data.glyphs.sets import GlyphDomains, GlyphSet, glyph_five, glyph_styles, glyphs100

__all__ = ["GlyphDomains", "GlyphSet", "glyph_five", "glyph_styles", "glyphs100"]
