"""A prediction: the draws' outputs and what follows from them."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes._checks import check_number
from slimbayes.batching import map_leaves, output_tensor
from slimbayes.likelihoods import Bernoulli, Categorical, Likelihood, mixture

__all__ = ["Prediction", "PredictionSummary"]


@dataclass(frozen=True)
class Prediction:
    r"""What a model says about a batch. Every figure is computed when asked for.

    Args:
        draws: The outputs, ``(draws, batch, *)``, or a nest of them as the network returns it.
        likelihood: How to read them, and which figures there are. None: outputs of shape (draws, batch, classes) as
            logits for the classification figures, any as bare values without noise for the regression figures.
        members: Mixture components; draws are member-major.
        batch_dim: The model's batch axis; ``log_likelihood`` adds up all the others.

    Example:
        >>> p = Prediction(torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]]), members=2)
        >>> p.probs, p.mutual_information.round(decimals=4), p.disagreement
        (tensor([[0.5000, 0.5000]]), tensor([0.3278]), tensor([1.]))
    """

    draws: Any
    likelihood: Likelihood | None = None
    members: int = 1
    batch_dim: int = 0

    @property
    def outputs(self) -> Tensor:
        """The tensor that the likelihood reads: the draws, or their ``logits``."""
        return output_tensor(self.draws)

    # ------------------------------------------------------------------ classification

    @property
    def draw_log_probs(self) -> Tensor:
        """Log-probabilities of each draw, ``(draws, batch, *, classes)``; two classes for Bernoulli."""
        if self.likelihood is not None:
            with torch.no_grad():
                return self.likelihood.class_log_probs(self.outputs)
        outputs = self.outputs
        if outputs.dim() < 3 or outputs.shape[-1] < 2:
            raise ValueError(
                f"Outputs of shape {tuple(outputs.shape)} cannot be read as logits of classes. Say how to read them: "
                "predict(x, likelihood='bernoulli'), or likelihood='gaussian' for a regression."
            )
        if outputs.dim() > 3:
            raise ValueError(
                f"Which axis of outputs of shape {tuple(outputs.shape)} has the classes is not known. Train the model, "
                "or say how to read them: predict(x, likelihood='categorical') for (draws, batch, time, class), "
                "likelihood=sb.Categorical(class_dim=2) for (draws, batch, class, height, width)."
            )
        return Categorical().class_log_probs(outputs)

    @property
    def class_log_probs(self) -> Tensor:
        """Log of the mixture's class probabilities (Eq. 14), ``(batch, *, classes)``."""
        return mixture(self.draw_log_probs)

    @property
    def log_probs(self) -> Tensor:
        """Log-probabilities of the classes; for Bernoulli, of yes."""
        log_probs = self.class_log_probs
        return log_probs[..., 1] if isinstance(self.likelihood, Bernoulli) else log_probs

    @property
    def probs(self) -> Tensor:
        """Probabilities of the classes, averaged over draws; for Bernoulli, of yes."""
        return self.log_probs.exp()

    @property
    def member_probs(self) -> Tensor:
        """Class probabilities of each member, averaged over its samples: ``(members, batch, *, classes)``."""
        return self.draw_log_probs.exp().unflatten(0, (self.members, -1)).mean(1)

    @property
    def label(self) -> Tensor:
        """The most probable class."""
        return self.class_log_probs.argmax(-1)

    @property
    def confidence(self) -> Tensor:
        """Its probability."""
        return self.class_log_probs.amax(-1).exp()

    @property
    def entropy(self) -> Tensor:
        r"""Total uncertainty: the mixture's entropy :math:`H(\bar p)`, in nats."""
        return _entropy(self.class_log_probs)

    @property
    def expected_entropy(self) -> Tensor:
        r"""Data uncertainty: :math:`\frac1D \sum_d H(p_d)`."""
        return _entropy(self.draw_log_probs).mean(0)

    @property
    def mutual_information(self) -> Tensor:
        r"""Model uncertainty: :math:`H(\bar p) - \frac1D \sum_d H(p_d) \ge 0`."""
        return (self.entropy - self.expected_entropy).clamp_min(0)

    @property
    def disagreement(self) -> Tensor:
        """Share of pairs of members (of draws, if there is one member) whose labels differ (section 3.6)."""
        probs = self.member_probs if self.members > 1 else self.draw_log_probs
        labels, voters = probs.argmax(-1), probs.shape[0]
        if voters < 2:
            return torch.zeros_like(labels[0], dtype=probs.dtype)
        votes = F.one_hot(labels, probs.shape[-1]).sum(0)
        agreeing = (votes * (votes - 1)).sum(-1)
        return 1 - agreeing.to(probs.dtype) / (voters * (voters - 1))

    # ------------------------------------------------------------------ regression

    @property
    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and noise of each draw, ``(draws, batch, *)``; without a likelihood the noise is 0."""
        if self.likelihood is None:
            return self.outputs, torch.zeros_like(self.outputs)
        with torch.no_grad():
            return self.likelihood.moments(self.outputs)

    @property
    def mean(self) -> Tensor:
        """The mixture's mean, ``(batch, *)``."""
        return self.moments[0].mean(0)

    @property
    def aleatoric_std(self) -> Tensor:
        """Noise in the data: root of the draws' mean variance."""
        return self.moments[1].square().mean(0).sqrt()

    @property
    def epistemic_std(self) -> Tensor:
        """Uncertainty of the model: standard deviation of the draws' means."""
        return self.moments[0].std(0, correction=0)

    @property
    def std(self) -> Tensor:
        """The mixture's standard deviation: both kinds together."""
        return (self.aleatoric_std.square() + self.epistemic_std.square()).sqrt()

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return the bounds of the central interval that holds ``level`` of the mixture."""
        check_number("level", level, 0.0, 1.0, "Give the probability inside, such as 0.9.")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def quantile(self, q: float) -> Tensor:
        """Return the mixture's ``q``-quantile; of counts, the smallest that reaches it."""
        check_number("q", q, 0.0, 1.0)
        if self.likelihood is None:
            return self.outputs.quantile(q, dim=0)
        with torch.no_grad():
            return self.likelihood.quantile(self.outputs, q)

    # ------------------------------------------------------------------ scores

    def log_likelihood(self, targets: Any) -> Tensor:
        """Return the mixture's log-likelihood of each target (Eq. 14), ``(batch,)``."""
        reading = Categorical() if self.likelihood is None else self.likelihood
        with torch.no_grad():
            return mixture(reading.log_prob(*reading.read(self.draws, targets, self.batch_dim)))

    # ------------------------------------------------------------------ examples

    def __len__(self) -> int:
        """Return the number of examples."""
        return self.outputs.shape[self._batch_axis]

    def __getitem__(self, examples: slice | Tensor | list[int]) -> "Prediction":
        """Return the prediction of some of the examples: a slice, their numbers, or a mask."""
        _check_examples(examples)
        before = (slice(None),) * self._batch_axis
        return replace(self, draws=self.outputs[(*before, examples)])

    def to(self, device: Any) -> "Prediction":
        """Return the prediction on another device."""
        likelihood = None if self.likelihood is None else copy.deepcopy(self.likelihood).to(device)
        return replace(self, draws=map_leaves(lambda x: x.to(device), self.draws), likelihood=likelihood)

    @property
    def _batch_axis(self) -> int:
        """Axis of the examples, draws first; that of ``batch_first``."""
        far = self.batch_dim > 0 and self.outputs.dim() > self.batch_dim + 2
        return 1 + (self.batch_dim if far else 0)


def _figure(name: str) -> Any:
    return property(lambda summary: summary._figure(name), doc=getattr(Prediction, name).__doc__)


class PredictionSummary(Prediction):
    """A prediction of many examples that keeps its figures but not the draws; ``model.predict`` makes it.

    All figures are there but those that need the draws: ``draws``, ``outputs``, ``draw_log_probs``, ``member_probs``,
    ``moments``, ``quantile``, ``interval`` and ``log_likelihood`` are errors that ask for ``keep_draws=True``.

    Args:
        figures: By name, what is kept; the others follow from them.
        errors: By name, why a figure cannot be computed.
        likelihood: How the draws were read.
        members: Mixture components.
        axis: Axis of the examples in the figures.

    Example:
        >>> p = Prediction(torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]]), members=2)
        >>> summary = PredictionSummary.of(p)
        >>> summary.probs, summary.mutual_information.round(decimals=4), summary.disagreement
        (tensor([[0.5000, 0.5000]]), tensor([0.3278]), tensor([1.]))
    """

    figures: dict[str, Tensor]
    errors: dict[str, str]
    axis: int

    #: What is kept.
    NAMES = ("class_log_probs", "expected_entropy", "disagreement", "mean", "aleatoric_std", "epistemic_std")

    class_log_probs = _figure("class_log_probs")
    expected_entropy = _figure("expected_entropy")
    disagreement = _figure("disagreement")
    mean = _figure("mean")
    aleatoric_std = _figure("aleatoric_std")
    epistemic_std = _figure("epistemic_std")

    def __init__(
        self,
        figures: dict[str, Tensor],
        errors: dict[str, str],
        likelihood: Likelihood | None,
        members: int,
        axis: int,
    ) -> None:
        fields = {"figures": figures, "errors": errors, "likelihood": likelihood, "members": members, "axis": axis}
        vars(self).update(fields)  # a dataclass that is frozen

    @classmethod
    def of(cls, prediction: Prediction) -> Self:
        """Return the summary of a prediction."""
        figures, errors = {}, {}
        for name in cls.NAMES:
            try:
                figures[name] = getattr(prediction, name)
            except ValueError as error:  # such as for the mean of classes
                errors[name] = str(error)
        axis = prediction._batch_axis - 1 if figures else 0
        return cls(figures, errors, prediction.likelihood, prediction.members, axis)

    @classmethod
    def joined(cls, parts: Iterable[Self], size: int) -> Self:
        """Return one summary of ``size`` examples from those of some at a time, which are copied as they come."""
        whole, begin = None, 0
        for part in parts:
            axis, length = part.axis, len(part)
            if whole is None:
                figures = {}
                for name, values in part.figures.items():
                    figures[name] = values.new_empty((*values.shape[:axis], size, *values.shape[axis + 1 :]))
                whole = part._with(figures)
            for name, values in part.figures.items():
                check_joinable((whole.figures[name], values), axis)
                whole.figures[name].narrow(axis, begin, length).copy_(values)
            begin += length
        assert whole is not None
        return whole

    def _figure(self, name: str) -> Tensor:
        if name in self.errors:
            raise ValueError(self.errors[name])
        return self.figures[name]

    @property
    def draws(self) -> Any:
        """An error: they were not kept."""
        raise ValueError(
            "This prediction has kept its figures (probs, entropy, mean, std, ...), but not the draws, which "
            "draws, outputs, draw_log_probs, member_probs, moments, quantile, interval and log_likelihood need. Use "
            "predict(x, keep_draws=True), on fewer examples at a time if they do not fit into memory."
        )

    def __len__(self) -> int:
        """Return the number of examples."""
        return next(iter(self.figures.values())).shape[self.axis]

    def __getitem__(self, examples: slice | Tensor | list[int]) -> Self:
        """Return the prediction of some of the examples: a slice, their numbers, or a mask."""
        _check_examples(examples)
        chosen = (*(slice(None),) * self.axis, examples)
        return self._with({name: values[chosen] for name, values in self.figures.items()})

    def to(self, device: Any) -> Self:
        """Return the prediction on another device."""
        likelihood = None if self.likelihood is None else copy.deepcopy(self.likelihood).to(device)
        figures = {name: values.to(device) for name, values in self.figures.items()}
        return type(self)(figures, self.errors, likelihood, self.members, self.axis)

    def _with(self, figures: dict[str, Tensor]) -> Self:
        return type(self)(figures, self.errors, self.likelihood, self.members, self.axis)

    def __repr__(self) -> str:
        """Name what is kept."""
        return f"PredictionSummary({len(self)} examples: {', '.join(self.figures)})"


def check_joinable(parts: Sequence[Tensor], axis: int) -> None:
    """Raise unless chunks of examples differ in their numbers of examples alone.

    Example:
        >>> check_joinable((torch.ones(2, 5), torch.ones(3, 5)), 0)
    """
    shapes = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}
    if len(shapes) > 1:
        raise ValueError(
            f"Cannot join the outputs of chunks: apart from the examples, their shapes are {sorted(shapes)[:3]}. "
            "Give `predict` a `batch_size` of all examples, or let the network pad to one length (`total_length`)."
        )


def _check_examples(examples: Any) -> None:
    if not isinstance(examples, (slice, Tensor, list)):
        raise TypeError(
            f"Expected a slice, a list or a tensor of examples, but got {type(examples).__name__}. For the first "
            "alone, p[:1]."
        )


def _entropy(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs.clamp_min(torch.finfo(log_probs.dtype).min)).sum(-1)
