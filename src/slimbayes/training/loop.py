"""The inner loop: one optimiser step after another."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from slimbayes.batching import output_tensor
from slimbayes.ensembles.networks import Networks
from slimbayes.likelihoods import Likelihood, ScaleLikelihood
from slimbayes.objective import ELBO
from slimbayes.training.batches import Part
from slimbayes.training.meter import Meter, correct

__all__ = ["Loop"]

#: Numbers of outputs that are kept for the scale of a likelihood, at most.
KEPT = 2**22


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
        kept: Outputs and targets of the last steps, for a likelihood's learned scale.
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

    kept: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def fit_scale(self, total: Callable[[Tensor], Tensor]) -> None:
        """Set a likelihood's learned scale to its best value for the outputs kept; of all processes, the mean square.

        Adam moves it by the learning rate in a step, which in a short run is far too little: intervals stay too wide.
        """
        likelihood, kept = self.elbo.likelihood, self.kept
        self.kept = []
        if kept and isinstance(likelihood, ScaleLikelihood):
            outputs, targets = (
                torch.cat(some, axis) for some, axis in zip(zip(*kept, strict=True), (1, 0), strict=True)
            )
            scale, examples = likelihood.best_scale(outputs, targets), targets.new_tensor([len(targets)]).double().cpu()
            *sums, count = total(torch.cat([scale.square().flatten() * examples, examples])).tolist()
            likelihood.set_scale((torch.tensor(sums) / count).sqrt().view(scale.shape))

    def _keep(self, outputs: Any, targets: Tensor) -> None:
        likelihood = self.elbo.likelihood
        if isinstance(likelihood, ScaleLikelihood) and likelihood.rho is not None:
            self.kept.append((output_tensor(outputs).detach(), targets))
            while len(self.kept) > 1 and sum(some.numel() for some, _ in self.kept) > KEPT:
                del self.kept[0]

    def step(self, parts: Iterable[Part], meter: Meter, collect: bool = False) -> int:
        """Do one optimiser step on this process's parts of its examples; return their number.

        Args:
            parts: The examples.
            meter: Takes up the terms.
            collect: Keep the outputs for ``fit_scale``.
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
            self._keep(outputs, targets)
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
