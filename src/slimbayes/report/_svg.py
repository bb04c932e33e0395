"""Drawings as SVG: inside a page, in its colours and font, and as files."""

import io
import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from slimbayes._checks import check_choice
from slimbayes.report.figures._style import LIGHT, Drawing, styled

#: What ``save`` can write, and the entries that would make two files of one drawing differ.
FORMATS = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}

_PIXELS_PER_POINT = 96 / 72
_VARIABLES = {colour: f"var(--{name})" for name, colour in LIGHT.items()}
_NUMBER = re.compile(r"-?\d+\.\d+")
_NO_ROTATION = re.compile(r" ?rotate\(-?0(?: [^)]*)?\)")
#: Values that SVG assumes, or that each element here has anyway.
_DEFAULTS = {"stroke-opacity": "1", "fill-opacity": "1", "opacity": "1", "stroke-width": "1", "fill": "#000000"}


def themed_svg(drawing: Drawing) -> str:
    """Return a drawing as an ``svg`` element to put into a page.

    Its colours are ``var(--ink)``, ``var(--muted)``, ``var(--grid)``, ``var(--surface)`` and ``var(--series-1)`` to
    ``var(--series-8)``, its font is the page's, its ids start with the drawing's key, and ``data-width`` has the
    width in pixels for which it was drawn. The same drawing gives the same text.
    """
    buffer = io.StringIO()
    with styled(**{"svg.fonttype": "none"}), warnings.catch_warnings():
        # The font that text is measured with may lack letters that the reader's font has.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        drawing.figure.savefig(buffer, format="svg", metadata=FORMATS["svg"])
    root = ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", buffer.getvalue(), count=1))
    for element in root.iter():
        _simplify(element)
    _prune(root)
    _shorten_ids(root, drawing.key)
    root.attrib = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": root.attrib["viewBox"],
        "width": "100%",
        "data-width": f"{float(root.attrib['viewBox'].split()[2]) * _PIXELS_PER_POINT:.0f}",
        "role": "img",
        "aria-labelledby": f"{drawing.key}-title {drawing.key}-desc",
    }
    for position, (tag, text) in enumerate((("title", drawing.title), ("desc", drawing.alt))):
        element = ElementTree.Element(tag, {"id": f"{drawing.key}-{tag}"})
        element.text = text
        root.insert(position, element)
    return ElementTree.tostring(root, encoding="unicode")


def save(drawing: Drawing, folder: str | os.PathLike[str], formats: Sequence[str] = ("svg", "pdf")) -> list[Path]:
    """Write a drawing to files named after its key, in light colours and with its fonts inside.

    Args:
        drawing: What to write.
        folder: Where; it is made if need be.
        formats: ``"svg"`` or ``"pdf"`` or both.

    Returns:
        The files. The same drawing gives the same bytes.
    """
    for one in formats:
        check_choice("formats", one, FORMATS)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{drawing.key}.{one}" for one in formats]
    with styled(**{"svg.fonttype": "path"}):
        for path, one in zip(paths, formats, strict=True):
            drawing.figure.savefig(path, format=one, metadata=FORMATS[one], facecolor=LIGHT["surface"])
    return paths


def _simplify(element: ElementTree.Element) -> None:
    """Drop what is not needed: name spaces, decimals, defaults, the font; and give colours their names."""
    element.tag = element.tag.rpartition("}")[2]
    element.tail = None
    if element.tag != "text":
        element.text = (element.text or "").strip() or None
    attributes = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
    if "style" in attributes:
        attributes["style"] = _style(attributes["style"])
    for name in ("d", "x", "y", "transform", "width", "height"):
        if name in attributes:
            attributes[name] = _NUMBER.sub(_rounded, _NO_ROTATION.sub("", " ".join(attributes[name].split())))
    if element.tag == "image":
        attributes["style"] = "image-rendering:pixelated"
        attributes["preserveAspectRatio"] = "none"
    if element.tag == "path" and "d" in attributes:
        attributes["d"] = re.sub(r" ?([A-Za-z]) ?", r"\1", attributes["d"])
    element.attrib = {name: value for name, value in attributes.items() if value != ""}


def _style(text: str) -> str:
    parts = {
        name.strip(): value.strip()
        for name, _, value in (part.partition(":") for part in text.split(";") if part.strip())
    }
    parts.pop("font-family", None)
    return ";".join(
        f"{name}:{_VARIABLES.get(value, value)}" for name, value in parts.items() if _DEFAULTS.get(name) != value
    )


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match[0]):.1f}".removesuffix(".0").replace("-0", "0" if match[0].startswith("-0.0") else "-0", 1)


def _prune(root: ElementTree.Element) -> None:
    """Drop metadata, empty groups, groups that say nothing, and ids that nobody names."""
    named = set(re.findall(r"#([\w-]+)", " ".join(value for one in root.iter() for value in one.attrib.values())))
    for element in root.iter():
        if element.attrib.get("id") not in named:
            element.attrib.pop("id", None)
    _unwrap(root)


def _unwrap(element: ElementTree.Element) -> None:
    children: list[ElementTree.Element] = []
    for child in element:
        _unwrap(child)
        empty = child.tag in ("g", "defs") and not len(child)
        if child.tag in ("metadata", "style") or empty or child.attrib.get("style") == "fill:none":
            continue
        children.extend(child if child.tag == "g" and not child.attrib else [child])
    element[:] = children
    styles = {child.attrib.get("style", "") for child in children}
    if element.tag == "g" and "style" not in element.attrib and len(children) > 1 and len(styles) == 1:
        # Markers repeat one style hundreds of times.
        element.attrib |= {"style": styles.pop()}
        for child in children:
            child.attrib.pop("style", None)


def _shorten_ids(root: ElementTree.Element, key: str) -> None:
    names = {one.attrib["id"]: f"{key}-{number}" for number, one in enumerate(root.iter()) if "id" in one.attrib}
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "id":
                element.attrib[name] = names[value]
            elif name in ("href", "clip-path") and "#" in value:
                element.attrib[name] = re.sub(r"#([\w-]+)", lambda match: f"#{names[match[1]]}", value)
