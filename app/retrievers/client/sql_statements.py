"""SQL statements with named parameters for psycopg: `:query` becomes `%(query)s`, unless it stands in a text."""

import re
from collections.abc import Sequence


def compile_statement(sql: str, names: Sequence[str]) -> tuple[str, frozenset[str]]:
    """Return the statement as psycopg takes it, and the names of its parameters.

    Texts, quoted names, dollar-quoted texts and comments are left alone, and `::` is a cast (PostgreSQL's manual,
    section 4.1). Raises ValueError for a parameter that is not among `names`, for none that changes with the canary,
    and for more than one statement.
    """
    parts: list[str] = []
    used: set[str] = set()
    ended = False
    for token in _TOKEN.finditer(sql):
        text, name = token[0], token["name"]
        comment = text.startswith(("--", "/*"))
        if ended and not comment and text.strip():
            raise ValueError("must be one statement")
        if name is not None:
            if name not in names:
                raise ValueError(f":{name} is not a known parameter; there are {', '.join(f':{one}' for one in names)}")
            used.add(name)
            text = f"%({name})s"
        elif text == ";":
            ended, text = True, ""
        else:
            text = text.replace("%", "%%")
        parts.append(text)
    if not used & _CHANGING:
        # A statement with parameters goes by the extended protocol, where the server itself refuses a second one.
        raise ValueError("never uses :query, so every canary would ask the same")
    return "".join(parts).strip(), frozenset(used)


_CHANGING = {"query", "vector"}
_TOKEN = re.compile(
    r"""
    [eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)      # a text with escapes; unclosed ones are the server's to complain about
    | '(?:[^']|'')*(?:'|\Z)
    | "(?:[^"]|"")*(?:"|\Z)
    | (?<![\w$])\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)
    | --[^\n]*
    | /\*.*?(?:\*/|\Z)
    | ::
    | (?<![\w\]:]):(?P<name>[A-Za-z_]\w*)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
