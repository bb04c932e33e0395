"""Parameter-matched ensembles: several narrow networks with the parameters of one wide network."""

from collections.abc import Callable

import torch
from torch import nn

from slimbayes._checks import check_count
from slimbayes.summary import count_parameters

__all__ = ["matched"]


def matched(build: Callable[[int], nn.Module], width: int, members: int) -> int:
    """Return the width at which ``members`` networks have together as many parameters as one of ``width``.

    Whole widths seldom fit exactly: it is the one whose total is nearest. Running statistics of norm layers count, as
    in the papers' tables. Networks are built on the meta device, so that this takes no memory and no random numbers.

    Args:
        build: Builds a network of a width; the wider, the more parameters.
        width: Of the wide network.
        members: How many narrow ones are to share its parameters.

    Example:
        >>> from slimbayes.nets import WideResNet
        >>> matched(lambda width: WideResNet(28, width, classes=100), width=10, members=4)
        5
    """
    check_count("width", width)
    check_count("members", members)

    def total(narrow: int) -> int:
        with torch.device("meta"):
            return members * count_parameters(build(narrow), running_statistics=True)

    wanted = total(width) // members
    if total(1) > wanted:
        raise ValueError(
            f"Expected argument `members` to be few enough to share {wanted:,} parameters, but got {members}: of width "
            f"1 they have {total(1):,}. Give fewer members, or a wider network."
        )
    below, above = 1, width + 1  # total(below) <= wanted, and above is too wide
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if total(middle) <= wanted else (below, middle)
    return min((below, above), key=lambda narrow: abs(total(narrow) - wanted))
