"""Saving what people define: one definition, or whole sets of documents."""
