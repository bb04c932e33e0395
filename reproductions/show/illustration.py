"""Figures that measure nothing: a sentence says so."""

from reproductions.show.base import Kind, Shown
from reproductions.stored import Sources

__all__ = ["Illustration"]


class Illustration(Kind):
    """Words only."""

    text: str

    def render(self, sources: Sources, stem: str) -> Shown:
        """Return the words."""
        return Shown(self.text.strip())
