"""The checklist of retrieval quality: chunks, embeddings, recall, precision, vocabulary, boundaries, slow drift.

Each module evaluates one point of it and returns a `Section`; the inputs and `Section` are in `evidence`. These are
rules of thumb, not measurements of harm; a point that is not measured is unknown, never good.
"""
