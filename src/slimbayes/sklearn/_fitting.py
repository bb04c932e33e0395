"""The training loop of the estimators: rows in memory, early stopping by the likelihood of held-out rows."""

import copy
import math
import time
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from slimbayes.likelihoods import mixture
from slimbayes.mcmc.model_sampler import chain_sampler
from slimbayes.methods.registry import method_of
from slimbayes.model import BayesianModel
from slimbayes.objective import ELBO

#: Rows that are scored at once.
BLOCK = 4096
#: Epochs after each of which a method collects, where methods do.
COLLECTED = 20


@dataclass(frozen=True)
class Rows:
    """Inputs, targets and weights of some rows.

    Attributes:
        x: ``(rows, features)``.
        y: ``(rows,)``.
        weights: ``(rows,)``, with mean 1.
    """

    x: Tensor
    y: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Plan:
    """How long and how to train.

    Attributes:
        epochs: At most.
        patience: Epochs without a better score after which to stop.
        batch_size: Rows of a step.
        learning_rate: Of AdamW.
        weight_decay: Of what has no prior.
        seconds: Time after which to stop; None for no such limit.
        verbose: Print the scores of every so many epochs; 0 for none.
    """

    epochs: int
    patience: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    seconds: float | None = None
    verbose: int = 0


@dataclass
class History:
    """What training has come to.

    Attributes:
        epochs: Epochs that were trained.
        best_epoch: The one whose weights are kept.
        best: Its score, the mean negative log-likelihood of the held-out rows.
        scores: Of each epoch.
        in_time: Whether training ended before its time was up.
    """

    epochs: int = 0
    best_epoch: int = 0
    best: float = math.inf
    scores: list[float] = field(default_factory=list)
    in_time: bool = True


def optimiser_of(model: BayesianModel, plan: Plan, num_data: int) -> torch.optim.Optimizer:
    """Return AdamW, or the sampler of a model of chains."""
    method = method_of(model)
    if method is not None and method.sampled:
        return chain_sampler(model, num_data, lr=plan.learning_rate)
    groups = model.param_groups(plan.learning_rate, plan.weight_decay)
    return torch.optim.AdamW(groups, plan.learning_rate, fused=True)


def train(
    model: BayesianModel,
    elbo: ELBO,
    optimiser: torch.optim.Optimizer,
    rows: Rows,
    held_out: Rows | None,
    plan: Plan,
    generator: Generator,
    samples: int,
) -> History:
    """Train, and leave the model with the weights that score best on the held-out rows; without those, with the last.

    The loss of a batch is the weighted mean of the rows' negative log-likelihoods, and the KL over the number of rows.
    """
    start, history, best = time.monotonic(), History(), None
    for epoch in range(1, plan.epochs + 1):
        one_epoch(model, elbo, optimiser, rows, plan.batch_size, generator)
        history.epochs = epoch
        if held_out is not None:
            score = mean_nll(model, held_out, samples)
            history.scores.append(score)
            if score < history.best:
                history.best, history.best_epoch = score, epoch
                best = copy.deepcopy(model.state_dict())
        if plan.verbose and epoch % plan.verbose == 0:
            scored = "" if held_out is None else f": NLL {score:.4f}, best {history.best:.4f} at {history.best_epoch}"
            print(f"epoch {epoch}{scored}")
        if held_out is not None and epoch - history.best_epoch >= plan.patience:
            break
        if plan.seconds is not None and time.monotonic() - start > plan.seconds:
            history.in_time = False
            break
    if best is not None:
        model.load_state_dict(best)
    elif held_out is None:
        history.best_epoch = history.epochs
    return history


def collect(
    model: BayesianModel,
    elbo: ELBO,
    optimiser: torch.optim.Optimizer,
    rows: Rows,
    plan: Plan,
    generator: Generator,
    seed: int,
) -> None:
    """Train on, and collect after each epoch, where a method draws from what training passes through, such as SWAG."""
    method = method_of(model)
    if model.needed:
        for _ in range(max(COLLECTED, model.needed)):
            one_epoch(model, elbo, optimiser, rows, plan.batch_size, generator)
            model.collect()
    if method is not None and method.finish is not None:
        parts = zip(rows.x.split(plan.batch_size), rows.y.split(plan.batch_size), strict=True)
        method.finish(elbo, list(parts), draws=COLLECTED, inference="ess", seed=seed, quiet=True)


def one_epoch(
    model: BayesianModel,
    elbo: ELBO,
    optimiser: torch.optim.Optimizer,
    rows: Rows,
    batch_size: int,
    generator: Generator,
) -> None:
    """Go once through the rows, in a random order."""
    model.train()
    order = torch.randperm(len(rows), generator=generator)
    weighted = bool((rows.weights != 1).any())
    for batch in order.split(batch_size):
        if len(batch) == len(rows):
            x, y, weights = rows.x, rows.y, rows.weights
        else:
            x, y, weights = rows.x[batch], rows.y[batch], rows.weights[batch]
        optimiser.zero_grad()
        outputs = model(x)
        if weighted:
            nll = -(weights * elbo.log_likelihood(outputs, y)).mean()
            loss = elbo.loss(nll, model.kl(elbo.member_kl), elbo.beta)
        else:
            loss = elbo(outputs, y)
        if not loss.isfinite():
            raise ValueError(
                f"Training has come to a loss of {loss.item()}. Lower `learning_rate`, or look for targets that "
                "are far out of range."
            )
        loss.backward()
        optimiser.step()


@torch.no_grad()
def mean_nll(model: BayesianModel, rows: Rows, samples: int) -> float:
    """Return the weighted mean of the mixture's negative log-likelihood; the draws are always the same."""
    model.eval()
    assert model.likelihood is not None
    total, samples = (
        0.0,
        samples if model.ready else 0,
    )  # before there is something to draw from, the weights as they are
    for begin in range(0, len(rows), BLOCK):
        part = slice(begin, begin + BLOCK)
        outputs = model(rows.x[part], samples=samples, noise="shared", generator=Generator().manual_seed(0))
        each = mixture(model.likelihood.log_prob(outputs, rows.y[part]))
        total -= float((rows.weights[part] * each).sum())
    score = total / float(rows.weights.sum())
    return score if math.isfinite(score) else math.inf
