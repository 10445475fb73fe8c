"""The heat map of a check as a picture: a row a canary, a column a run; for pages, mails and reports.

`layout_of` says where each cell is, so that a page can tell what is under the pointer; `heat_map_png` draws it.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache, lru_cache
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.base.values import Value
from app.records.domain import Cell
from app.reports.views import HeatMap, HeatMapLayout

if TYPE_CHECKING:  # 4 MB that a service does without until a picture is drawn
    from PIL import ImageDraw, ImageFont

SHEET_WIDTH: Final = 640
_HEIGHT: Final = 360
"""Pixels for the rows, if they are not too low then; more for very many."""
_ROW: Final = (1, 9)
"""The lowest and the highest row."""
_SEAM: Final = 4
"""Cells of this size and more have a line between them."""
_GAP: Final = 10
"""Between groups."""
_LINE: Final = 13
_FONT: Final = 11
_LABEL: Final = 150
_MARGIN: Final = 8
_VERSION: Final = 14
"""Letters of an index version, without the words that all of them begin with."""
_WORD: Final = re.compile(r"[^-_.:/@ ]*[-_.:/@ ]")


class _Inks(Value):
    """Colours of a theme; what is absent is not drawn."""

    text: str
    line: str
    cells: dict[str, str]


_LIGHT: Final = _Inks(
    text="#3d4450",
    line="#6b7280",
    cells={Cell.HEALTHY: "#a3d9b8", Cell.SOMETIMES: "#f2b880", Cell.DEGRADED: "#c2410c", Cell.UNMEASURED: "#b6b9c4"},
)
_DARK: Final = _Inks(
    text="#c9ced8",
    line="#8b93a1",
    cells={Cell.HEALTHY: "#2f6a4a", Cell.SOMETIMES: "#a8672a", Cell.DEGRADED: "#ff7a45", Cell.UNMEASURED: "#6b7080"},
)


def layout_of(groups: Sequence[int], *, columns: int, width: int) -> HeatMapLayout:
    """Return where the cells of groups of so many canaries are in a picture of this width, in pixels of a page."""
    row = max(_ROW[0], min(_ROW[1], _HEIGHT // max(sum(groups), 1)))
    left = min(_LABEL, 3 * width // 10)
    tops: list[int] = []
    top = 2 * _LINE + 4
    for number in groups:
        tops += range(top, top + number * row, row)
        top += max(number * row, _LINE) + _GAP
    return {
        "width": width,
        "height": top,
        "left": left,
        "column": (width - left) / max(columns, 1),
        "tops": tops,
        "row": row,
    }


def sheet(heat_map: HeatMap) -> str:
    """Return the picture for what is printed or sent, on white, as the address that a page holds it by."""
    picture = heat_map_png(heat_map, width=SHEET_WIDTH, scale=2, ground="#ffffff")
    return f"data:image/png;base64,{b64encode(picture).decode()}"


def heat_map_png(
    heat_map: HeatMap, *, width: int, scale: int, is_dark: bool = False, ground: str | None = None
) -> bytes:
    """Draw a heat map; `width` is that on a page, `scale` the pixels of the screen for one of them.

    `ground`: the colour behind it; None = what the page has.
    """
    return _drawn(msgspec.json.encode(heat_map), width, scale, is_dark, ground)


@lru_cache(maxsize=32)
def _drawn(encoded: bytes, width: int, scale: int, is_dark: bool, ground: str | None) -> bytes:  # noqa: FBT001 - hashed
    """Draw a heat map, once as long as it is the same."""
    from PIL import Image, ImageDraw  # noqa: PLC0415 - see TYPE_CHECKING

    heat_map: HeatMap = msgspec.json.decode(encoded)
    inks, columns = _DARK if is_dark else _LIGHT, len(heat_map["columns"])
    layout = layout_of([len(group["canaries"]) for group in heat_map["groups"]], columns=columns, width=width)
    edges = [round((layout["left"] + place * layout["column"]) * scale) for place in range(columns + 1)]
    image = Image.fromarray(_painted(heat_map, layout, edges, inks, scale))
    if ground is not None:
        image = Image.alpha_composite(Image.new("RGBA", image.size, ground), image).convert("RGB")
    draw = ImageDraw.Draw(image)
    tops = iter(layout["tops"])
    for group in heat_map["groups"]:
        first, *_ = islice(tops, len(group["canaries"]))
        room = layout["left"] - _MARGIN
        words = group["name"].replace("_", "  ") or "without  a  tag"  # one space of this font is hardly to be seen
        label = _cut(words, room * scale, scale)
        draw.text((room * scale, first * scale), label, inks.text, _font(scale), anchor="ra")
    _draw_marks(draw, heat_map, edges, layout["height"], inks, scale)
    packed = BytesIO()
    image.quantize(64, Image.Quantize.FASTOCTREE).save(packed, "PNG", optimize=True)
    return packed.getvalue()


def _painted(
    heat_map: HeatMap, layout: HeatMapLayout, edges: Sequence[int], inks: _Inks, scale: int
) -> NDArray[np.uint8]:
    """Return the pixels of the cells alone, (height, width, 4); between large cells is a line."""
    from PIL import ImageColor  # noqa: PLC0415 - see TYPE_CHECKING

    pixels = np.zeros((layout["height"] * scale, layout["width"] * scale, 4), np.uint8)
    colours = np.zeros((128, 4), np.uint8)
    for cell, ink in inks.cells.items():
        colours[ord(cell)] = (*ImageColor.getrgb(ink), 255)
    rows = [row["cells"] for group in heat_map["groups"] for row in group["canaries"]]
    codes = np.frombuffer("".join(rows).encode("ascii"), np.uint8).reshape(len(rows), len(heat_map["columns"]))
    wide, high = np.diff(edges), layout["row"] * scale
    line = np.repeat(colours[codes], wide, axis=1)
    if layout["column"] >= _SEAM:
        for edge in edges[1:-1]:
            line[:, edge - edges[0] - scale : edge - edges[0]] = 0
    seam = scale if layout["row"] >= _SEAM else 0
    for top, one in zip(layout["tops"], line, strict=True):
        pixels[top * scale : top * scale + high - seam, edges[0] : edges[-1]] = one
    return pixels


def _draw_marks(
    draw: "ImageDraw.ImageDraw", heat_map: HeatMap, edges: Sequence[int], height: int, inks: _Inks, scale: int
) -> None:
    """Draw a dashed line where the index version changed, and its name where there is room in one of two lines."""
    names = short_versions([mark["index_version"] for mark in heat_map["marks"]])
    ends = [0, 0]
    for mark, name in zip(heat_map["marks"], names, strict=True):
        x = edges[min(mark["column"], len(edges) - 1)]
        for y in range((2 * _LINE) * scale, height * scale, 5 * scale):
            draw.line((x, y, x, y + 2 * scale), inks.line, scale)
        wide = int(_font(scale).getlength(name)) + 2 * scale
        begin = x + 2 * scale if x + wide <= edges[-1] else x - wide  # left of the line where it is the last
        level = next((one for one in (1, 0) if begin >= ends[one]), None)
        if level is not None:
            draw.text((begin, level * _LINE * scale), name, inks.text, _font(scale))
            ends[level] = begin + wide + 6 * scale


def short_versions(versions: Sequence[str]) -> list[str]:
    """Return index versions without the words that all begin with, cut where they are long: `…` says so."""
    short = list(versions)
    while len(set(short)) > 1:
        first = _WORD.match(short[0])
        if first is None or not first[0] or not all(one.startswith(first[0]) for one in short):
            break
        short = [one[len(first[0]) :] for one in short]
    return [one if len(one) <= _VERSION else f"{one[: _VERSION - 1]}…" for one in short]


def _cut(text: str, width: int, scale: int) -> str:
    while text and _font(scale).getlength(text) > width:
        text = text.removesuffix("…")[:-1] + "…" if len(text) > 1 else ""
    return text


@cache
def _font(scale: int) -> "ImageFont.FreeTypeFont | ImageFont.ImageFont":
    from PIL import ImageFont  # noqa: PLC0415 - see TYPE_CHECKING

    return ImageFont.load_default(_FONT * scale)
