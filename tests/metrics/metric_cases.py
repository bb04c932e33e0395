"""One row for each torchmetrics class: arguments of 60 examples, and the axis on which each argument has them.

All of them have ties, confidences of 0 and 1, and empty bins.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from slimbayes import metrics

EXAMPLES = 60


class Case(NamedTuple):
    name: str
    function: str
    arguments: tuple[Tensor, ...]
    axes: tuple[int, ...]
    options: dict[str, int]
    class_options: dict[str, int]

    def expected(self):
        return getattr(metrics, self.function)(*self.arguments, **self.options)

    def metric(self, **settings):
        return getattr(metrics, self.name)(**self.options, **self.class_options, **settings)

    def shard(self, index: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.index_select(axis, index) for x, axis in zip(self.arguments, self.axes, strict=True))


def _cases() -> list[Case]:
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(3, EXAMPLES, 4, generator=generator)).round(decimals=0)
    logits[:, :5] *= 100  # confidences that round to 1
    member_logs = logits.double().log_softmax(2)
    member_probs = member_logs.exp()
    probs = member_probs.mean(0).float()
    targets = torch.randint(4, (EXAMPLES,), generator=generator)
    yes = targets % 2
    mean, noise = torch.randn(3, EXAMPLES, generator=generator), 0.1 + torch.rand(3, EXAMPLES, generator=generator)
    truth = torch.randn(EXAMPLES, generator=generator)
    low, high = mean[0] - noise[0], mean[0] + noise[0]
    score, other = probs[:, 1], probs[:, 1].square().round(decimals=2)
    rows = [
        ("Accuracy", (probs, targets), (0, 0), {}, {}),
        ("TopKAccuracy", (probs, targets), (0, 0), {"k": 2}, {}),
        ("NegativeLogLikelihood", (member_logs[0], targets), (0, 0), {}, {}),
        ("BrierScore", (probs, targets), (0, 0), {}, {}),
        ("ExpectedCalibrationError", (probs, targets), (0, 0), {"bins": 7}, {}),
        ("AdaptiveCalibrationError", (probs, targets), (0, 0), {"bins": 7}, {}),
        ("ClasswiseCalibrationError", (probs, targets), (0, 0), {"bins": 7}, {"classes": 4}),
        ("SignedCalibrationError", (probs, targets), (0, 0), {}, {}),
        ("ReliabilityCurve", (probs, targets), (0, 0), {"bins": 7}, {}),
        ("RiskCoverageCurve", (probs, targets), (0, 0), {}, {}),
        ("Aurc", (probs, targets), (0, 0), {}, {}),
        ("AucRoc", (score, yes), (0, 0), {}, {}),
        ("AucPr", (score, yes), (0, 0), {}, {}),
        ("RootMeanSquaredError", (mean[0], truth), (0, 0), {}, {}),
        ("GaussianNegativeLogLikelihood", (mean, noise, truth), (1, 1, 0), {}, {}),
        ("Crps", (mean, noise, truth), (1, 1, 0), {}, {}),
        ("IntervalCoverage", (low, high, truth), (0, 0, 0), {}, {}),
        ("IntervalWidth", (low, high), (0, 0), {}, {}),
        ("Disagreement", (member_probs,), (1,), {}, {}),
        ("NormalisedDisagreement", (member_probs, targets), (1, 0), {}, {}),
        ("PairwiseDisagreement", (member_probs,), (1,), {}, {"members": 3}),
        ("PairwiseKl", (member_logs,), (1,), {}, {}),
        ("CosineSimilarity", (member_probs,), (1,), {}, {}),
        ("OodScores", (score, other), (0, 0), {}, {}),
    ]
    return [Case(name, _function(name), *rest) for name, *rest in rows]


def _function(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)[1:]


CASES = _cases()
