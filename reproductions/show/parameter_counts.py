"""Table 1 of the k-tied paper: how many parameters a posterior of one m × n weight has."""

from collections.abc import Callable

from pydantic import Field
from torch import nn

import slimbayes as sb
from reproductions.show.base import Kind, Shown
from reproductions.stored import Sources
from slimbayes._text_table import as_markdown

__all__ = ["FORMULAS", "ParameterCounts"]

#: By family: the paper's formula, and the same as code.
FORMULAS: dict[str, tuple[str, Callable[[int, int, int], int]]] = {
    "multivariate Normal": ("mn + mn(mn + 1)/2", lambda m, n, k: m * n + m * n * (m * n + 1) // 2),
    "diagonal Normal": ("mn + mn", lambda m, n, k: 2 * m * n),
    "matrix Normal": ("mn + m(m + 1)/2 + n(n + 1)/2", lambda m, n, k: m * n + m * (m + 1) // 2 + n * (n + 1) // 2),
    "matrix Normal, diagonal": ("mn + m + n", lambda m, n, k: m * n + m + n),
    "k-tied Normal": ("mn + k(m + n)", lambda m, n, k: m * n + k * (m + n)),
}


class ParameterCounts(Kind):
    """The formulas, their values for one weight, and what the layers here have."""

    shape: tuple[int, int] = (400, 400)
    """m and n."""
    k: int = Field(2, ge=1)

    def render(self, sources: Sources, stem: str) -> Shown:
        """Return the table."""
        (m, n), k = self.shape, self.k
        counted = {"diagonal Normal": _count(sb.mean_field, m, n), "k-tied Normal": _count(sb.k_tied, m, n, k=k)}
        counted["matrix Normal, diagonal"] = _count(sb.k_tied, m, n, k=1)
        rows = [["family", "parameters", f"m = {m}, n = {n}, k = {k}", "counted in slimbayes"]]
        for family, (formula, value) in FORMULAS.items():
            rows.append([family, formula, f"{value(m, n, k):,}", f"{counted[family]:,}" if family in counted else ""])
        note = (
            "The last column counts the trained numbers of a dense layer without bias; the diagonal matrix Normal is "
            "the 1-tied Normal (Appendix A). slimbayes has no layers with correlated weights."
        )
        return Shown(f"{as_markdown(rows)}\n\n{note}")


def _count(method: Callable[..., nn.Module], m: int, n: int, **options: int) -> int:
    model = method(nn.Linear(m, n, bias=False), prior_std=1.0, **options)
    return sum(parameter.numel() for parameter in model.parameters())
