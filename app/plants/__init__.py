"""Planted documents: put into a source, found, removed and gone, with how long each took."""
