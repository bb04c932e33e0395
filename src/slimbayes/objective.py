"""The variational objective (Eq. 2), per example."""

import functools
import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.modules.loss import _Loss
from torch.nn.parallel import DistributedDataParallel

from slimbayes._checks import check_choice, check_count, check_number
from slimbayes.batching import map_leaves
from slimbayes.likelihoods import Categorical, Function, Likelihood, get_likelihood, mixture
from slimbayes.model import BayesianModel, unwrapped
from slimbayes.schedules import Schedule

__all__ = ["ELBO", "Terms"]

#: The four forms of appendix D: Eqs. 13, 14, 11 and 12.
OBJECTIVES = ("average", "mixture", "marginal_logits", "marginal_probs")


class Terms(NamedTuple):
    """The parts of the objective.

    Attributes:
        nll: Negative log-likelihood, mean over the batch.
        kl: KL of all members, not yet divided by ``num_data``.
        beta: The KL's weight at this step; of compiled code, as a tensor.
        loss: ``nll + beta * kl / num_data``; where members share nothing, as in a deep ensemble, and the objective
            is the average, ``members * nll + ...``: each gets the gradient that it would get alone.
    """

    nll: Tensor
    kl: Tensor
    beta: float
    loss: Tensor


class ELBO:
    r"""The negative evidence lower bound of Eq. 2 divided by N, without :math:`-\log p(W)`.

    .. math::
        \mathcal L = -\frac1B \sum_{b=1}^B \ell_b + \frac{\beta}{N} \sum_k KL(q_k \| p)

    with :math:`\ell_b` by ``objective``, over the draws d = 1..D of the output (appendix D):

    ========================  ==================================================================  =======
    ``"average"``             :math:`\frac1D \sum_d \log p(y_b \mid f_d)`                         Eq. 13
    ``"mixture"``             :math:`\log \frac1D \sum_d p(y_b \mid f_d)`                         Eq. 14
    ``"marginal_logits"``     :math:`\log p(y_b \mid \frac1D \sum_d f_d)`                         Eq. 11
    ``"marginal_probs"``      the likelihood with its parameters averaged over draws              Eq. 12
    ========================  ==================================================================  =======

    :math:`-\log p(W)` is weight decay: the papers' l2 is ``weight_decay = 2 * l2`` in ``model.param_groups``.

    ``torch.compile`` takes ``elbo(model(x), y)`` as one graph, whatever the schedule; call ``elbo.step()`` outside.

    Args:
        model: The model; wrapped in ``DistributedDataParallel`` or compiled is fine. It is given the likelihood,
            so that ``predict`` reads its outputs in the same way. Build the ELBO before the optimiser: a Gaussian's
            learned noise is a parameter of the model, which must be there before it is wrapped, too.
        num_data: Number N of training examples, of the whole training set.
        likelihood: A name such as ``"categorical"``, ``"bernoulli"`` or ``"gaussian"``, a ``Likelihood``, or a function
            ``(outputs, targets) -> log-likelihood`` of shape ``(draws, batch)``. A name keeps the likelihood of
            that kind that the model has, as a loaded one may.
        objective: See above. The papers train on the average, which generalises better.
        beta: Weight of the KL: a number, or a function of the step such as ``sb.linear_annealing(steps)``.
        member_kl: ``"sum"`` over members, as the reference has it, or ``"mean"``, the mixture's bound.

    Example:
        >>> import torch, slimbayes as sb
        >>> model = sb.rank1(torch.nn.Linear(8, 3))
        >>> elbo = sb.ELBO(model, num_data=1000, beta=sb.linear_annealing(100))
        >>> x, y = torch.randn(5, 8), torch.tensor([0, 1, 2, 0, 1])
        >>> elbo(model(x), y).backward()
        >>> elbo.step()
        >>> elbo.beta
        0.02
    """

    def __init__(
        self,
        model: Any,
        num_data: int,
        likelihood: str | Likelihood | Callable[[Any, Any], Tensor] = "categorical",
        objective: str = "average",
        beta: float | Schedule = 1.0,
        member_kl: str = "sum",
    ) -> None:
        check_count("num_data", num_data, 1, "Give the number of training examples, not the batch size.")
        check_choice("objective", objective, OBJECTIVES)
        check_choice("member_kl", member_kl, ("sum", "mean"))
        if not callable(beta):
            check_number("beta", beta, low=0.0, or_low=True, remedy="It weighs the KL; 1 is the ELBO.")
        wrappers = unwrapped(model)
        self.model: BayesianModel = wrappers[-1]
        self.num_data, self.objective, self.member_kl = num_data, objective, member_kl
        self.schedule = beta
        self._traced_beta = torch.zeros((), dtype=torch.float64)
        self.steps = 0
        _check_no_loss(likelihood)
        distributed = any(isinstance(wrapper, DistributedDataParallel) for wrapper in wrappers)
        self.likelihood = self._give(likelihood, distributed)
        if objective == "marginal_probs" and isinstance(self.likelihood, Function):
            raise ValueError(
                "Expected argument `likelihood` to be one of ours with objective='marginal_probs', but got a "
                "function, whose parameters cannot be averaged. Use another objective."
            )
        self._counted = self._signed = False
        self._untouched: list[tuple[Tensor, Tensor]] | None = []

    def _give(self, likelihood: Any, distributed: bool) -> Likelihood:
        """Give the model its likelihood; a name means the one that it has already, if it is of that kind."""
        own, new = self.model.likelihood, get_likelihood(likelihood)
        if own is not None and (own is likelihood or (likelihood is not new and _answers(own, new))):
            return own
        if distributed and list(new.parameters()):
            raise ValueError(
                f"Expected argument `model` not to be wrapped in DistributedDataParallel yet: likelihood={new.name!r} "
                "adds a parameter, which the wrapper would not average. Build the ELBO before wrapping the model."
            )
        self.model.likelihood = new.to(device=self.model.device, dtype=self.model.dtype)
        return new

    @property
    def steps(self) -> int:
        """Optimiser steps so far, which decide where a schedule is."""
        return self._steps

    @steps.setter
    def steps(self, steps: int) -> None:
        self._steps = steps
        self._traced_beta.fill_(math.nan)
        with suppress(Exception):  # a schedule may end with the last step, and is asked once more after it
            self._traced_beta.fill_(self.beta)

    @property
    def beta(self) -> float:
        """The KL's weight at this step."""
        return float(self.schedule(self.steps)) if callable(self.schedule) else float(self.schedule)

    def step(self) -> None:
        """Move the schedule by one optimiser step."""
        self.steps += 1

    def log_likelihood(self, outputs: Any, targets: Any) -> Tensor:
        """Return each example's log-likelihood in the form of ``objective``, ``(batch,)``."""
        values = self._log_likelihoods(outputs, targets)
        return values if values.dim() == 1 else values.mean(0)

    def _log_likelihoods(self, outputs: Any, targets: Any) -> Tensor:
        """Return ``(batch,)``, or ``(draws, batch)`` with its mean over draws still to be taken."""
        batch_dim = self.model.sampling.batch_dim
        outputs, targets = self.likelihood.read(outputs, targets, batch_dim)
        if self.objective == "marginal_probs":
            values = self.likelihood.log_prob_of_mean(outputs, targets)
            self._look(values.shape[0])
            return values
        if self.objective == "marginal_logits":
            outputs = map_leaves(lambda x: x.mean(0, keepdim=True) if x.dim() else x, outputs)
        values = self.likelihood.training_log_prob(outputs, targets)
        as_given = isinstance(self.likelihood, Function) and batch_dim > 0  # which axis the batch is on is not known
        known = isinstance(outputs, Tensor) and not as_given
        if values.dim() != 2 or (known and values.shape != outputs.shape[:2]):
            raise ValueError(
                f"Expected the likelihood to return a log-likelihood of shape (draws, batch)"
                f"{f' = {tuple(outputs.shape[:2])}' if known else ''}, but got {tuple(values.shape)}. Sum over what "
                "belongs to one example, and do not average over the batch or the draws. (A loss of torch "
                "does, and is the negative.)"
            )
        self._look(values.shape[1])
        if isinstance(self.likelihood, Function):
            self._look_at_sign(self.likelihood, values)
        return mixture(values) if self.objective == "mixture" else values

    def _negative_log_likelihood(self, outputs: Any, targets: Any) -> Tensor:
        """Return the mean over the batch and the draws."""
        if self.objective == "average" and type(self.likelihood) is Categorical and type(outputs) is Tensor:
            found = self.likelihood.mean_loss(outputs, targets)
            if found is not None:
                self._look(outputs.shape[1])
                return found
        return -self._log_likelihoods(outputs, targets).mean()

    def _look(self, batch: int) -> None:
        """Warn, once and in training, of a batch larger than the training set, and of parameters left untrained."""
        if torch.compiler.is_compiling() or not (self.model.training and torch.is_grad_enabled()):
            return
        if batch > self.num_data and not self._counted:
            self._counted = True
            warnings.warn(
                f"A batch of {batch} examples is larger than num_data={self.num_data}, which makes the KL count too "
                "much. Give `num_data` the number of all training examples.",
                stacklevel=6,
            )
        if self._untouched is not None:
            self._look_for_untrained()

    def _look_at_sign(self, function: Function, values: Tensor) -> None:
        """Warn if the first values of a function are those of a loss."""
        if self._signed or torch.compiler.is_compiling():
            return
        self._signed = True
        if values.numel() > 1 and bool((values > 0).all()):
            warnings.warn(
                f"The likelihood {function.label!r} is above 0 for every example of the first batch, as a loss "
                "would be. It is maximised: if it is a loss, return its negative.",
                stacklevel=6,
            )

    def _look_for_untrained(self) -> None:
        """Warn if an optimiser moves the network, and leaves what the likelihood learns where it was."""
        learned = [parameter for parameter in self.likelihood.parameters() if parameter.requires_grad]
        trained = [parameter for parameter in self.model.net.parameters() if parameter.requires_grad]
        if not learned or not trained:
            self._untouched = None
        elif not self._untouched:
            self._untouched = [(parameter, parameter.detach().clone()) for parameter in (*learned, trained[-1])]
        else:
            *stayed, moved = (bool((parameter == before).all()) for parameter, before in self._untouched)
            if moved:
                return  # no step yet
            self._untouched = None
            if all(stayed) and any(parameter.grad is not None for parameter in learned):
                warnings.warn(
                    f"The optimiser has moved the network, but not what the {self.likelihood.name} likelihood learns "
                    f"({sum(parameter.numel() for parameter in learned)} parameters). Build the ELBO before the "
                    "optimiser, so that model.parameters() has them.",
                    stacklevel=7,
                )

    def terms(self, outputs: Any, targets: Any) -> Terms:
        """Return the parts of the objective.

        Args:
            outputs: ``model(x)``, draws first.
            targets: The batch's targets, without the draws' axis.
        """
        nll = self._negative_log_likelihood(outputs, targets)
        kl = self.model.kl(self.member_kl)
        # Compiled code would be bound to a number.
        beta: Any = self._traced_beta if torch.compiler.is_compiling() else self.beta
        return Terms(nll, kl, beta, self.loss(nll, kl, beta))

    def loss(self, nll: Tensor, kl: Tensor, beta: float | Tensor) -> Tensor:
        """Put the terms together."""
        if self.model.independent and self.objective == "average":
            # The mean over draws gives each member a share of the gradient; one that trains alone is to have all of it.
            nll = nll * self.model.members
        if isinstance(beta, Tensor):
            return nll + (beta / self.num_data).to(kl) * kl
        return torch.add(nll, kl, alpha=beta / self.num_data)

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        """Return the loss."""
        return self.terms(outputs, targets).loss

    def state_dict(self) -> dict[str, int]:
        """Return what a resumed run needs."""
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take up where ``state`` left off."""
        self.steps = state["steps"]


def _answers(own: Likelihood, asked: Likelihood) -> bool:
    """Tell whether a likelihood is what was asked for; an option that was None then may have been set since."""
    spec = {option: value for option, value in asked.spec().items() if value is not None}
    return type(own) is type(asked) and not isinstance(own, Function) and {**own.spec(), **spec} == own.spec()


def _check_no_loss(likelihood: Any) -> None:
    """Raise for a loss of torch: it has the other sign, and is averaged."""
    function = likelihood.func if isinstance(likelihood, functools.partial) else likelihood
    name = getattr(function, "__name__", "")
    of_torch = getattr(function, "__module__", "") == "torch.nn.functional"
    if isinstance(function, _Loss) or (of_torch and ("loss" in name or "entropy" in name)):
        raise TypeError(
            f"Expected argument `likelihood` to give a log-likelihood for each draw and example, but got the loss "
            f"{name or type(function).__name__}. Use 'categorical', 'bernoulli' or 'gaussian'."
        )
