"""Asks for generated answers, and judges about them."""
