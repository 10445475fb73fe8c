"""Names and values that can be a header of HTTP (RFC 9110), for documents and for requests alike."""

import re

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
"""A token (section 5.6.2)."""
HEADER_VALUE = re.compile(r"[\t -~\x80-\xff]*")
"""One line (section 5.5): nothing that could begin another header. Characters travel as `HEADER_CHARSET`."""
HEADER_CHARSET = "latin-1"
OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "expect"})
"""Names, in lower case, of what follows from the request itself: nobody else sets them."""
