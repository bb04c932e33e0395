"""Likelihoods with a scale besides what the network returns: fixed, trained, or one more output."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from slimbayes._checks import check_choice, check_count, check_number
from slimbayes.families import SCALE_EPSILON, inverse_softplus, softplus_scale
from slimbayes.likelihoods.base import Likelihood, mixture

__all__ = ["ScaleLikelihood"]

#: Steps of L-BFGS at most; some ten are usual.
STEPS = 200


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

    def best_scale(self, outputs: Tensor, targets: Tensor, mixed: bool = False) -> Tensor:
        r"""Return the learned scale with the largest log-likelihood of some outputs, in double precision, on the CPU.

        Args:
            outputs: ``(draws, batch, *)``.
            targets: ``(batch, *)``.
            mixed: Of the mixture of the draws, which predicts, and whose means have a spread besides the scale. Else
                the mean of the draws' log-likelihoods, which the objective trains.

        Example:
            >>> from slimbayes.likelihoods import StudentT
            >>> quantiles = (torch.arange(1000) + 0.5) / 1000
            >>> targets = 0.3 * (quantiles - 0.5) / (quantiles * (1 - quantiles) / 2).sqrt()  # of 2 degrees of freedom
            >>> round(StudentT(df=2.001).best_scale(torch.zeros(1, 1000), targets).item(), 3)
            0.3
        """
        trial, outputs, targets = copy.deepcopy(self).cpu().double(), outputs.detach().cpu().double(), targets.cpu()
        assert trial.rho is not None
        if mixed:  # from above, as a mixture may have another maximum at a scale that is too small
            trial.set_scale(self.best_scale(outputs, targets))
        optimiser = torch.optim.LBFGS(
            [trial.rho.requires_grad_()],
            max_iter=STEPS,
            tolerance_grad=1e-9,
            tolerance_change=1e-12,
            line_search_fn="strong_wolfe",
        )

        def loss() -> float:
            optimiser.zero_grad()
            each = trial.log_prob(outputs, targets)
            value = -(mixture(each) if mixed else each).mean()
            value.backward()
            return value.item()

        with torch.enable_grad():
            optimiser.step(loss)
        return softplus_scale(trial.rho.detach())

    @torch.no_grad()
    def set_scale(self, scale: Tensor) -> None:
        """Set a learned scale.

        Example:
            >>> from slimbayes.likelihoods import StudentT
            >>> likelihood = StudentT()
            >>> likelihood.set_scale(torch.tensor(0.25))
            >>> round(likelihood.location_and_scale(torch.zeros(1, 1))[1].item(), 4)
            0.25
        """
        if self.rho is None:
            value = getattr(self, self._argument)
            raise ValueError(f"Expected a likelihood with {self._argument}='learned', but it is {value!r}.")
        scale = (scale.double() - SCALE_EPSILON).clamp_min(1e-6)
        self.rho.copy_(scale + (-(-scale).expm1()).log())

    def outputs_for(self, targets: int) -> int:  # noqa: D102
        return 2 * targets if getattr(self, self._argument) == "predicted" else targets

    def spec(self) -> dict[str, Any]:  # noqa: D102
        each = {} if self.outputs is None else {"outputs": self.outputs}
        return {"name": self.name, self._argument: getattr(self, self._argument), **each}
