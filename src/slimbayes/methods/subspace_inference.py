"""The posterior in the subspace of training's principal directions (Izmailov et al. 2019, section 3)."""

import math
from collections.abc import Iterable, Iterator, Sized
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor, nn

from slimbayes import batching
from slimbayes._bar import Bar
from slimbayes._checks import check_choice, check_count
from slimbayes.conversion import copy_of
from slimbayes.ensembles._statistics import check_batches, inputs_of, running_norms
from slimbayes.ensembles.networks import Networks
from slimbayes.ensembles.subspace import SubspacePosterior
from slimbayes.mcmc.elliptical_slice import elliptical_slice
from slimbayes.methods._gaussian_vi import fit_gaussian
from slimbayes.objective import ELBO

__all__ = ["subspace_inference"]

#: By how much the log-likelihood of one point may vary, as another order of adding up makes it.
REPEATS = 0.1


def subspace_inference(
    elbo: ELBO,
    batches: Iterable[Any],
    method: str = "ess",
    *,
    samples: int = 30,
    burn: int = 10,
    thin: int = 1,
    steps: int = 1000,
    lr: float = 0.1,
    covariance: str = "full",
    seed: int = 0,
    quiet: bool = False,
) -> None:
    r"""Find the posterior :math:`p(z \mid D) \propto p(D \mid \hat w + P^\top z)^{1/T} N(z \mid 0, \sigma^2 I)`.

    Elliptical slice sampling keeps ``samples`` positions of z for each member, and needs a few passes over all data for
    each; variational inference fits a Gaussian, with a batch in each step. Batch-norm layers use the statistics of the
    batch, as in the authors' code, and dropout is off. Networks with batch norm need ``model.refresh`` afterwards.

    Args:
        elbo: The objective of a model made by ``sb.subspace``, for its likelihood and its number of data.
        batches: The training data, as a list or a loader of (inputs, targets) that always gives the same; inputs as
            for ``model.refresh``.
        method: ``"ess"``, elliptical slice sampling, or ``"vi"``, variational inference.
        samples: Positions to keep of each member, with ``"ess"``.
        burn: Transitions to leave out first, with ``"ess"``.
        thin: Transitions for each sample, with ``"ess"``.
        steps: Of the optimiser, with ``"vi"``; each takes two draws of z, with a batch each.
        lr: Its learning rate, in units of the prior's standard deviation.
        covariance: Of the Gaussian, ``"full"`` or ``"diagonal"``.
        seed: Of the randomness, which is drawn on the CPU.
        quiet: Show no progress bar; it is shown on a terminal, where tqdm is installed.
    """
    check_choice("method", method, ("ess", "vi"))
    check_count("seed", seed, 0)
    check_batches(batches)
    net: Any = elbo.model.net
    if not isinstance(net, Networks) or not isinstance(net.posterior, SubspacePosterior):
        raise TypeError(
            f"Expected argument `elbo` to be that of a model made by sb.subspace, but its model was made by "
            f"{elbo.model.method}."
        )
    posterior = net.posterior
    if posterior.collected < posterior.needed:
        posterior.check_ready()
    posterior.span()
    targets = [_Target(elbo, net, member, batches) for member in range(posterior.members)]
    generator = Generator().manual_seed(seed)
    transitions = burn + thin * samples if method == "ess" else steps
    with Bar(posterior.members * transitions, "subspace inference", "step", quiet) as bar:
        if method == "ess":
            for target in targets:
                target.check_start()
            chains = [
                elliptical_slice(
                    target.whole,
                    torch.zeros(posterior.rank, dtype=torch.float64),
                    prior_std=posterior.prior_std,
                    samples=samples,
                    burn=burn,
                    thin=thin,
                    generator=generator,
                    after_step=bar.step,
                )
                for target in targets
            ]
            posterior.set_samples(torch.stack(chains))
            return
        fits = [
            fit_gaussian(
                target.estimate,
                posterior.rank,
                start_std=posterior.prior_std,
                covariance=covariance,
                steps=steps,
                lr=lr,
                generator=generator,
                after_step=bar.step,
            )
            for target in targets
        ]
        posterior.set_gaussian(torch.stack([mean for mean, _ in fits]), torch.stack([factor for _, factor in fits]))


class _Target:
    """The tempered likelihood of one member's coordinates."""

    def __init__(self, elbo: ELBO, networks: Networks, member: int, batches: Iterable[Any]) -> None:
        assert isinstance(networks.posterior, SubspacePosterior)
        self.elbo, self.posterior, self.layout, self.member = elbo, networks.posterior, networks.layout, member
        self.batches = batches
        self.net: nn.Module = copy_of(networks.networks[member]).eval()
        for norm in running_norms(self.net):
            norm.train()
            norm.track_running_stats = False  # uses the batch's statistics and keeps none
        self.cycle, self.seen = self._again_and_again(), 0

    def whole(self, z: Tensor) -> Tensor:
        """Return the tempered log-likelihood of all data."""
        with torch.no_grad():
            values = [self._of_batch(z, batch) for batch in self.batches]
        self._check(sum(len(value) for value in values))
        return torch.stack([value.double().sum() for value in values]).sum().cpu() / self.posterior.temperature

    @cached_property
    def number(self) -> int:
        """How many batches there are."""
        return len(self.batches) if isinstance(self.batches, Sized) else sum(1 for _ in self.batches)

    def check_start(self) -> None:
        """Raise unless the likelihood is finite at the start, and the same each time: slice sampling rests on it."""
        first, second = (float(self.whole(torch.zeros(self.posterior.rank))) for _ in range(2))
        if not math.isfinite(first):
            raise ValueError(
                f"The log-likelihood at the mean of the snapshots is {first}. Check `batches` for NaN, and collect "
                "when training has settled."
            )
        if abs(first - second) > REPEATS:
            raise ValueError(
                f"Expected argument `batches` to give the same each time, but the log-likelihood was {first:g}, then "
                f"{second:g}. Use a fixed order (a loader without shuffle) and no augmentation, or method='vi'."
            )

    def estimate(self, z: Tensor) -> Tensor:
        """Return the log-posterior's unbiased estimate from the next batch."""
        value = self._of_batch(z, next(self.cycle))
        self.seen += len(value)
        # Not the batch's mean: of a smaller last batch, each example would count for more.
        log_likelihood = value.double().sum().cpu() * self.number / self.posterior.temperature
        return log_likelihood - (z / self.posterior.prior_std).square().sum() / 2

    def _again_and_again(self) -> Iterator[Any]:
        while True:
            self.seen = 0
            yield from self.batches
            self._check(self.seen)

    def _of_batch(self, z: Tensor, batch: Any) -> Tensor:
        if not isinstance(batch, (tuple, list)) or len(batch) < 2:
            raise TypeError(
                f"Expected argument `batches` to give pairs of inputs and targets, but got {type(batch).__name__}."
            )
        posterior, k = self.posterior, self.member
        args, kwargs = inputs_of(batch, posterior.mean.device)
        parameters = posterior.mean[k, : posterior.weights] + z.to(posterior.basis) @ posterior.basis[k]
        state = self.layout.state(torch.cat([parameters, posterior.mean[k, posterior.weights :]]))
        outputs = self.layout.call(self.net, state, args, kwargs)
        drawn = batching.map_leaves(lambda x: x.unsqueeze(0) if x.dim() else x, outputs)
        return self.elbo.log_likelihood(drawn, batching.map_leaves(lambda x: x.to(posterior.mean.device), batch[1]))

    def _check(self, seen: int) -> None:
        if seen != self.elbo.num_data:
            raise ValueError(
                f"Expected argument `batches` to give the {self.elbo.num_data} examples that `num_data` of the ELBO "
                f"says, but got {seen}. Give all training examples once, without drop_last."
            )
