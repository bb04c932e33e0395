"""Likelihoods with a scale besides what the network returns: fixed, trained, or one more output."""

from typing import Any

import torch
from torch import Tensor, nn

from slimbayes._checks import check_choice, check_count, check_number
from slimbayes.families import inverse_softplus, softplus_scale
from slimbayes.likelihoods.base import Likelihood

__all__ = ["ScaleLikelihood"]


class ScaleLikelihood(Likelihood):
    r"""A likelihood of a location and a scale :math:`s = \text{softplus}(\rho) + 10^{-7}`.

    Args:
        argument: What the subclass calls the scale.
        value: ``"learned"``: trained with the model. ``"predicted"``: the network's last axis holds the locations,
            then as many rhos. A number: the scale itself, fixed.
        initial: Where a learned scale starts.
        outputs: Length of the last axis of outputs that have a learned scale each; None for one scale for all.
    """

    def __init__(self, argument: str, value: str | float, initial: float, outputs: int | None) -> None:
        super().__init__()
        if isinstance(value, str):
            check_choice(argument, value, ("learned", "predicted"))
        else:
            check_number(argument, value, low=0.0)
        check_number("initial", initial, low=0.0)
        if outputs is not None:
            check_count("outputs", outputs)
            if value != "learned":
                raise ValueError(
                    f"Expected argument `outputs` to be None unless {argument}='learned', but got {outputs} with "
                    f"{argument}={value!r}. Leave it out."
                )
        self._argument = argument
        self.outputs = outputs
        setattr(self, argument, value)
        rho = torch.full(() if outputs is None else (outputs,), inverse_softplus(initial))
        self.rho = nn.Parameter(rho) if value == "learned" else None

    def location_and_scale(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the outputs say of the location, and the scale that belongs to it, in one shape."""
        value = getattr(self, self._argument)
        if value == "predicted":
            if outputs.dim() < 3 or outputs.shape[-1] % 2:
                raise ValueError(
                    f"Expected the network to have an even number of outputs with {self._argument}='predicted' (means, "
                    f"then rhos), but got shape {tuple(outputs.shape)}. Give it twice as many outputs as targets."
                )
            location, rho = outputs.chunk(2, -1)
            return location, softplus_scale(rho)
        if self.rho is None:
            return outputs, outputs.new_tensor(value).expand_as(outputs)
        if self.outputs is not None and (outputs.dim() < 3 or outputs.shape[-1] != self.outputs):
            raise ValueError(
                f"Expected outputs of shape (draws, batch, *, {self.outputs}), a {self._argument} for each of the last "
                f"axis, but got {tuple(outputs.shape)}. Change `outputs` of the {self.name} likelihood."
            )
        return outputs, softplus_scale(self.rho).to(outputs.dtype).expand_as(outputs)

    def outputs_for(self, targets: int) -> int:  # noqa: D102
        return 2 * targets if getattr(self, self._argument) == "predicted" else targets

    def spec(self) -> dict[str, Any]:  # noqa: D102
        each = {} if self.outputs is None else {"outputs": self.outputs}
        return {"name": self.name, self._argument: getattr(self, self._argument), **each}
