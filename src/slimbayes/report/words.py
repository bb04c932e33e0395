"""Names in a sentence."""

from collections.abc import Sequence

__all__ = ["listing"]


def listing(names: Sequence[str], limit: int = 6) -> str:
    """Return names in a sentence.

    Args:
        names: At least one.
        limit: Of more names than this, the rest are counted.

    Example:
        >>> listing(["a"]), listing(["a", "b", "c"]), listing("abcdefgh", 3)
        ('a', 'a, b and c', 'a, b, c and 5 more')
    """
    if len(names) > limit:
        return f"{', '.join(names[:limit])} and {len(names) - limit} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
