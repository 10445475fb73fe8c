"""The checklist of retrieval quality: chunks, embeddings, recall, precision, vocabulary, boundaries, slow drift.

Each module looks at one point of it and gives a `Section`; what they look at, and what a section is, is in `evidence`.
Rules of thumb, not measurements of harm: a section says where to look, and what is not measured is unknown, never good.
"""
