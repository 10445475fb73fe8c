"""Rows of generated answers and of what judges say of them."""
