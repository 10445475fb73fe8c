"""Reading of PyYAML nodes: children, values, and where a node ends in the text."""

from collections.abc import Iterator, Sequence
from typing import Any

import yaml


def all_nodes(pages: Sequence[Any]) -> Iterator[Any]:
    """Yield every node of pages, keys of mappings too."""
    left = [page for page in pages if page is not None]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, yaml.MappingNode):
            left += [one for pair in node.value for one in pair]
        elif isinstance(node, yaml.SequenceNode):
            left += node.value


def child_of(node: Any, name: str) -> Any:
    """Value of a key of a mapping node; None where there is none."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if scalar_value(key) == name), None)


def items_of(node: Any) -> Sequence[Any]:
    """Items of a sequence node; empty for others."""
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def scalar_value(node: Any) -> str | None:
    """Value of a scalar node; None for others."""
    return node.value if isinstance(node, yaml.ScalarNode) else None


def node_end(node: Any) -> int:
    """End of a node in the text; in block style that of its last scalar, not the next token."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    parts = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
    # Empty nodes have no place of their own; the parser may give them that of another.
    written = [one for one in parts if one.start_mark.index < one.end_mark.index]
    return max(map(node_end, written), default=int(node.start_mark.index))


def multi_line_pages(pages: Sequence[Any]) -> Iterator[Any]:
    """Yield the pages that are not in flow style: one line of those may hold secrets too."""
    return (page for page in pages if not getattr(page, "flow_style", True))
