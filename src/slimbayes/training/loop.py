"""The inner loop: one optimiser step after another."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from slimbayes.batching import output_tensor
from slimbayes.ensembles.networks import Networks
from slimbayes.likelihoods import Gaussian, Likelihood
from slimbayes.objective import ELBO
from slimbayes.training.batches import Part
from slimbayes.training.meter import Meter, correct

__all__ = ["Loop"]


@dataclass
class Loop:
    """Trains a model that Accelerate has prepared.

    Attributes:
        accelerator: Devices, precision, accumulation, processes.
        model: The prepared model.
        elbo: The objective, on the bare model.
        optimiser: The prepared optimiser.
        schedule: Its learning rates.
        clip_norm: Bound of the gradients' norm, or None.
        channels_last: Turn images into that layout.
        residuals: Sums of a Gaussian's squared residuals, and over how many examples.
        look: Called before each update with the number of the step, counted from 1, while gradients are there.
    """

    accelerator: Accelerator
    model: Any
    elbo: ELBO
    optimiser: Any
    schedule: LambdaLR
    clip_norm: float | None = None
    channels_last: bool = False
    look: Callable[[int], None] | None = None

    residuals: tuple[Tensor, int] | None = None

    def fit_noise(self, total: Callable[[Tensor], Tensor]) -> None:
        """Set a Gaussian's learned noise to its best value for the residuals collected, of all processes.

        Adam moves it by the learning rate in a step, which in a short run is far too little: intervals stay too wide.
        """
        likelihood, found = self.elbo.likelihood, self.residuals
        self.residuals = None
        if found is not None and isinstance(likelihood, Gaussian):
            squares, examples = found[0].flatten(), found[0].new_tensor([found[1]])
            *sums, count = total(torch.cat([squares, examples])).tolist()
            assert likelihood.rho is not None
            likelihood.set_noise((torch.tensor(sums) / count).view(likelihood.rho.shape))

    def _collect_residuals(self, outputs: Any, targets: Tensor) -> None:
        likelihood = self.elbo.likelihood
        if isinstance(likelihood, Gaussian) and likelihood.rho is not None:
            squares = likelihood.residual_variance(output_tensor(outputs).detach(), targets) * len(targets)
            before = (0, 0) if self.residuals is None else self.residuals
            self.residuals = before[0] + squares, before[1] + len(targets)

    def step(self, parts: Iterable[Part], meter: Meter, collect: bool = False) -> int:
        """Do one optimiser step on this process's parts of its examples; return their number.

        Args:
            parts: The examples.
            meter: Takes up the terms.
            collect: Keep the residuals for ``fit_noise``.
        """
        examples = 0
        for part in parts:
            with self.accelerator.accumulate(self.model):
                self._part(part, meter, collect)
            examples += len(part.targets)
        self.elbo.step()
        self.schedule.step()
        return examples

    def _part(self, part: Part, meter: Meter, collect: bool) -> None:
        device = self.accelerator.device
        targets = part.targets.to(device, non_blocking=True)
        outputs = self.model(*(self._placed(x, device) for x in part.inputs))
        terms = self.elbo.terms(outputs, targets)
        loss = terms.loss
        if part.weight != 1:
            loss = self.elbo.loss(part.weight * terms.nll, terms.kl, terms.beta)
        likelihood = self.elbo.likelihood
        right = None
        if isinstance(likelihood, Likelihood):
            right = correct(likelihood, output_tensor(outputs).detach(), targets)
        meter.add(self.elbo.steps + 1, terms.nll, terms.kl, terms.beta, terms.loss, right, len(targets))
        if collect:
            self._collect_residuals(outputs, targets)
        self.accelerator.backward(loss)
        if self.clip_norm is not None and self.accelerator.sync_gradients:
            self._clip(self.clip_norm)
        if self.look is not None and self.accelerator.sync_gradients:
            self.look(self.elbo.steps + 1)
        self._update()

    def _clip(self, norm: float) -> None:
        net = self.elbo.model.net
        if not isinstance(net, Networks):
            self.accelerator.clip_grad_norm_(self.model.parameters(), norm)
            return
        self.accelerator.unscale_gradients()
        likelihood = self.elbo.model.likelihood  # which may learn its noise
        for part in (*net.networks, *([] if likelihood is None else [likelihood])):  # each as if it were alone
            torch.nn.utils.clip_grad_norm_(list(part.parameters()), norm)

    def _update(self) -> None:
        if self.accelerator.scaler is not None or self.accelerator.distributed_type == DistributedType.XLA:
            self.optimiser.step()
            self.optimiser.zero_grad()
        elif self.accelerator.sync_gradients:
            # Accelerate's own step does no more than this here, but searches the disk for a package each time.
            self.optimiser.optimizer.step()
            self.optimiser.optimizer.zero_grad()

    def _placed(self, x: Tensor, device: torch.device) -> Tensor:
        layout = torch.channels_last if self.channels_last and x.dim() == 4 else torch.preserve_format
        return x.to(device, non_blocking=True, memory_format=layout)
