"""What a page says of one prediction: of classes, or of a real value; by the mixture and by each member."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from slimbayes.data.dataset import Task
from slimbayes.prediction import Prediction
from slimbayes.report._density import Density, density_of
from slimbayes.report._wording import listing

#: Classes that are shown by name: the mixture's most probable, and the first choices of members.
MOST_CLASSES = 6


class Bar(NamedTuple):
    """A class's probability.

    Attributes:
        name: Of the class.
        value: The mean over draws.
        low: The least of the draws.
        high: The greatest.
        chosen: Whether this class is the most probable.
    """

    name: str
    value: float
    low: float
    high: float
    chosen: bool


@dataclass(frozen=True)
class Classes:
    """A prediction of a class; entropies in nats.

    Attributes:
        label: The most probable class.
        confidence: Its probability.
        bars: The mixture's.
        members: Those of each member.
        labels: Each member's most probable class.
        total: Entropy of the mixture.
        data: The part that would remain if the weights were known: the draws' mean entropy.
        model: The rest, the mutual information of class and weights.
        most: The largest entropy that so many classes allow.
    """

    label: str
    confidence: float
    bars: list[Bar]
    members: list[list[Bar]]
    labels: list[str]
    total: float
    data: float
    model: float
    most: float

    @property
    def spread(self) -> bool:
        """Whether some member's draws differ."""
        return any(bar.high - bar.low > 1e-6 for bars in self.members for bar in bars)

    @property
    def varied(self) -> bool:
        """Whether some draws differ, of any members."""
        return any(bar.high - bar.low > 1e-6 for bar in self.bars)

    @property
    def headline(self) -> str:
        """The prediction in a few words."""
        return f"{self.label}, with probability {probability(self.confidence)}"

    @property
    def findings(self) -> list[tuple[str, str]]:
        """What there is to say, in plain words, each with a heading."""
        said = [("Members", _agreement(self.label, self.labels))] if len(self.labels) > 1 else []
        if self.total < 0.01 * self.most:
            return [*said, ("Uncertainty", "There is hardly any.")]
        size = "low" if self.total < 0.2 * self.most else "high" if self.total > 0.6 * self.most else "moderate"
        amount = f"It is {size}: {self.total:.2f} of at most {self.most:.2f} nats."
        return [*said, ("Uncertainty", f"{amount} {_whence(self.model / self.total)}")]


class Member(NamedTuple):
    """What a member says of a real value.

    Attributes:
        mean: Mean over its draws.
        noise: Standard deviation of the data's noise.
        spread: Standard deviation of its draws' means.
    """

    mean: float
    noise: float
    spread: float


@dataclass(frozen=True)
class Real:
    """A prediction of a real value, in its own units.

    Attributes:
        mean: Of the mixture.
        std: Its standard deviation.
        low: Lower end of the interval.
        high: Upper end.
        level: Probability in between.
        data: Standard deviation of noise in the data.
        model: Standard deviation of the draws' means.
        members: What each member says.
        density: To draw.
    """

    mean: float
    std: float
    low: float
    high: float
    level: float
    data: float
    model: float
    members: list[Member]
    density: Density

    @property
    def model_share(self) -> float:
        """Part of the variance that is the model's."""
        return self.model**2 / self.std**2 if self.std else 0.0

    @property
    def headline(self) -> str:
        """The prediction in a few words."""
        return f"{self.mean:.4g}, give or take {self.std:.3g}"

    @property
    def findings(self) -> list[tuple[str, str]]:
        """What there is to say, in plain words, each with a heading."""
        parts = (
            f"Of the variance, {share(1 - self.model_share)} is noise in the data and {share(self.model_share)} is "
            f"what the model does not know. {_advice(self.model_share)}"
        )
        inside = f"With probability {self.level:g} the value is between {self.low:.4g} and {self.high:.4g}."
        return [("Interval", inside), ("Uncertainty", parts)]


def parts_of(prediction: Prediction, task: Task, level: float = 0.9) -> list[Classes] | list[Real]:
    """Return what a prediction for one example says, in double precision; a part for each of its outputs.

    Example:
        >>> import torch
        >>> prediction = Prediction(torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]]), members=2)
        >>> (part,) = parts_of(prediction, Task("categorical", 2, (1,), ("no", "yes")))
        >>> part.labels, round(part.total, 4), round(part.data + part.model, 4)
        (['no', 'yes'], 0.6931, 0.6931)
    """
    outputs = prediction.outputs.double()
    prediction = Prediction(outputs, prediction.likelihood, prediction.members, prediction.batch_dim)
    return _reals(prediction, task, level) if task.likelihood == "gaussian" else _classes(prediction, task)


def class_name(task: Task, number: int) -> str:
    """Return the name of a class, or its number."""
    return str(number) if task.classes is None else task.classes[number]


# ---------------------------------------------------------------------- classes


def _classes(prediction: Prediction, task: Task) -> list[Classes]:
    probs = prediction.draw_log_probs.exp()[:, 0]
    draws = probs.reshape(len(probs), -1, probs.shape[-1])
    totals, data, model = (
        getattr(prediction, name)[0].reshape(-1).tolist()
        for name in ("entropy", "expected_entropy", "mutual_information")
    )
    found = []
    for number, own in enumerate(draws.unbind(1)):
        members = own.unflatten(0, (prediction.members, -1))
        labels = [int(member.mean(0).argmax()) for member in members]
        mixture = own.mean(0)
        best = int(mixture.argmax())
        listed = _listed(mixture, labels)
        found.append(
            Classes(
                class_name(task, best),
                float(mixture[best]),
                _bars(own, listed, task),
                [_bars(member, listed, task) for member in members],
                [class_name(task, label) for label in labels],
                totals[number],
                data[number],
                model[number],
                math.log(own.shape[-1]),
            )
        )
    return found


def _listed(mixture: Tensor, choices: Sequence[int]) -> list[int]:
    """Return the classes to show, the mixture's most probable first."""
    order = mixture.argsort(descending=True).tolist()
    return (
        order
        if len(order) <= MOST_CLASSES + 1
        else [number for rank, number in enumerate(order) if rank < MOST_CLASSES or number in choices][
            : 2 * MOST_CLASSES
        ]
    )


def _bars(draws: Tensor, listed: list[int], task: Task) -> list[Bar]:
    """Return bars of the listed classes, and one of all others together."""
    best = int(draws.mean(0).argmax())
    columns = [(class_name(task, number), draws[:, number], number == best) for number in listed]
    if len(listed) < draws.shape[1]:
        columns.append((f"{draws.shape[1] - len(listed)} others", 1 - draws[:, listed].sum(1).clamp_max(1), False))
    return [Bar(name, float(p.mean()), float(p.min()), float(p.max()), chosen) for name, p, chosen in columns]


# ---------------------------------------------------------------------- real values


def _reals(prediction: Prediction, task: Task, level: float) -> list[Real]:
    means, noises = prediction.moments
    means = means[:, 0].reshape(len(means), -1) * task.target_std + task.target_mean
    noises = noises[:, 0].reshape(len(noises), -1) * task.target_std
    low, high = (bound[0].reshape(-1) * task.target_std + task.target_mean for bound in prediction.interval(level))
    data, model = (
        getattr(prediction, name)[0].reshape(-1) * task.target_std for name in ("aleatoric_std", "epistemic_std")
    )
    found = []
    for column in range(means.shape[1]):
        of_member = zip(*(x[:, column].unflatten(0, (prediction.members, -1)) for x in (means, noises)), strict=True)
        members = [
            Member(float(mean.mean()), float(noise.square().mean().sqrt()), float(mean.std(correction=0)))
            for mean, noise in of_member
        ]
        both = float(data[column]), float(model[column])
        bounds = float(low[column]), float(high[column])
        drawn = density_of(means[:, column], noises[:, column], prediction.members, bounds)
        found.append(Real(float(means[:, column].mean()), math.hypot(*both), *bounds, level, *both, members, drawn))
    return found


# ---------------------------------------------------------------------- words


def probability(value: float) -> str:
    """Return three decimals, and neither 0 nor 1 unless it is."""
    if 0 < value < 0.0005:
        return "below 0.001"
    return "above 0.999" if 0.9995 <= value < 1 else f"{value:.3f}"


def share(value: float) -> str:
    """Return a share in per cent, and neither 0 nor 100 unless it is."""
    if 0 < value < 0.005:
        return "less than 1%"
    return "more than 99%" if 0.995 <= value < 1 else f"{100 * value:.0f}%"


def _agreement(label: str, labels: Sequence[str]) -> str:
    others = sorted(
        {other for other in labels if other != label}, key=lambda one: (-labels.count(one), labels.index(one))
    )
    if not others:
        return f"Both members say {label}." if len(labels) == 2 else f"All {len(labels)} members say {label}."
    say = [f"{labels.count(other)} say{'s' * (labels.count(other) == 1)} {other}" for other in others]
    return (
        f"{labels.count(label)} of {len(labels)} members say{'s' * (labels.count(label) == 1)} {label}; {listing(say)}."
    )


def _whence(model_share: float) -> str:
    return (
        f"Of it, {share(1 - model_share)} is in each draw by itself, which cannot tell the classes apart; "
        f"{share(model_share)} is disagreement between draws. {_advice(model_share)}"
    )


def _advice(model_share: float) -> str:
    if model_share > 0.5:
        return "Most of it is what the model does not know: more training examples like this one would help."
    if model_share > 0.2:
        return "A good part is what the model does not know: more training examples like this one may help."
    return "More training examples like this one would help the model little, as far as it can tell."
