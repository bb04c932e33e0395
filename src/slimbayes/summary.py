"""What conversion did, as data and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn
from torch.nn.parameter import is_lazy

from slimbayes.conversion import Part, all_parameters

if TYPE_CHECKING:
    from slimbayes.model import BayesianModel

__all__ = ["Summary", "count_parameters"]


def count_parameters(module: nn.Module, running_statistics: bool = False) -> int:
    """Return the number of parameters of a module, tied ones once.

    Args:
        module: Any module.
        running_statistics: Count the running means and variances of norm layers too, as Keras does and
            as the papers' tables therefore do.

    Example:
        >>> count_parameters(nn.BatchNorm1d(5)), count_parameters(nn.BatchNorm1d(5), running_statistics=True)
        (10, 20)
    """
    count = all_parameters(module)
    if running_statistics:
        count += sum(
            buffer.numel()
            for name, buffer in module.named_buffers()
            if name.rpartition(".")[2] in ("running_mean", "running_var")
        )
    return count


@dataclass(frozen=True)
class Summary:
    """What a conversion did; ``print`` it.

    Attributes:
        parts: Every module with weights of its own: converted, or left with the reason.
        before: Parameters of the plain network.
        after: Parameters of the model.
        trainable: Those of them that train.
    """

    parts: list[Part]
    before: int
    after: int
    trainable: int

    @classmethod
    def of(cls, model: BayesianModel) -> Summary:
        """Return the summary of a model."""
        after = count_parameters(model.net)
        trainable = sum(p.numel() for p in model.net.parameters() if p.requires_grad and not is_lazy(p))
        return cls(model.parts, model.parameters_before, after, trainable)

    @property
    def converted(self) -> list[str]:
        """Names of the converted modules."""
        return [part.name for part in self.parts if part.converted]

    @property
    def left(self) -> dict[str, str]:
        """Names of the modules that were left, with the reason."""
        return {part.name: part.reason for part in self.parts if not part.converted}

    def __str__(self) -> str:
        rows = [("module", "class", "parameters", "became")]
        for part in self.parts:
            became = part.reason if part.converted else f"left: {part.reason}"
            change = f"{part.before:,} -> {part.after:,}" if part.converted else f"{part.before:,}"
            rows.append((part.name or "(root)", part.kind, change, became))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]]) for row in rows]
        growth = 100 * (self.after / self.before - 1)
        lines.append(
            f"{self.before:,} parameters became {self.after:,} (+{growth:.2f}%), {self.trainable:,} of them trainable"
        )
        return "\n".join(lines)
