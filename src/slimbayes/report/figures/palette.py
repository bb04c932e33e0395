"""The colours of figures: those that ``static/style.css`` gives light pages.

Figures are drawn in them. ``themed_svg`` puts ``var(--name)`` in their place, so that they follow the page into the
dark; each value is therefore used once.
"""

__all__ = ["LIGHT", "MAP_COLOUR", "SERIES"]

#: How many series have a colour of their own.
SERIES = 8

LIGHT = {
    "ink": "#1b1f24",
    "muted": "#5a626d",
    "grid": "#e4e7eb",
    "surface": "#ffffff",
    "series-1": "#2f61cc",
    "series-2": "#d27c16",
    "series-3": "#599b8c",
    "series-4": "#590480",
    "series-5": "#786330",
    "series-6": "#7b1304",
    "series-7": "#a53585",
    "series-8": "#363f4b",
}

#: Heat maps are this colour, more or less opaque: it stands out from a light surface and from a dark one.
MAP_COLOUR = "#4a86e0"
