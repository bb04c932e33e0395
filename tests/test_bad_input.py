"""Each call with a bad argument is a clear error of ours, which names the argument and what would be right."""

import math

import pytest
import torch
from torch import nn

import slimbayes as sb

X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2])
PROBS = torch.full((6, 3), 1 / 3)
LEVELS = (0, 1, 2.0, -1, "a")
METHODS = ("rank1", "batch_ensemble", "mean_field", "k_tied", "mc_dropout", "deterministic")


def net(inputs=4):
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, 3))


def model():
    return sb.rank1(net(), members=2)


def classes():
    return sb.Prediction(torch.zeros(2, 6, 3), sb.Categorical(), 2)


def real():
    return sb.Prediction(torch.zeros(2, 6, 1), sb.Gaussian(noise=1.0), 2)


def scored(name, probs, targets):
    if name == "negative_log_likelihood" and isinstance(probs, torch.Tensor):
        probs = probs.log()
    return getattr(sb.metrics, name)(probs, targets)


#: By what is called: the call, with a bad argument; the values; and a word that the error has.
CALLS = {
    "predict": (
        lambda bad: model().predict(bad),
        {
            "float64": (X.double(), "float64"),
            "float16": (X.half(), "float16"),
            "complex": (X + 0j, "complex64"),
            "int64": (X.long(), "int64"),
            "bool": (X > 0, "bool"),
            "on meta": (X.to("meta"), "meta"),
            "one row alone": (X[0], "batch"),
            "a number": (torch.tensor(1.0), "batch"),
            "of a wrong width": (X[:, :3], "channels"),
            "None": (None, "tensor"),
            "a list": ([[1.0] * 4], "tensor"),
            "NumPy": (X.numpy(), "tensor"),
            "a word": ("x", "tensor"),
            "empty": (X[:0], "empty"),
            "nan": (X * math.nan, "NaN"),
            "inf": (X / 0, "infinite"),
        },
    ),
    "forward": (
        lambda bad: model()(bad),
        {
            "None": (None, "tensor"),
            "a word": ("x", "tensor"),
            "empty": (X[:0], "empty"),
            "one row alone": (X[0], "batch"),
            "of a wrong width": (X[:, :3], "channels"),
            "NumPy": (X.numpy(), "tensor"),
        },
    ),
    "forward, samples": (
        lambda bad: model()(X, samples=bad),
        {str(bad): (bad, "samples") for bad in (-1, 1.5, "3", None)},
    ),
    "predict, samples": (
        lambda bad: model().predict(X, samples=bad),
        {str(bad): (bad, "samples") for bad in (-1, 1.5, "3")},
    ),
    "predict, batch_size": (
        lambda bad: model().predict(X, batch_size=bad),
        {str(bad): (bad, "batch_size") for bad in (0, -1, 1.5, "3")},
    ),
    "predict, max_memory": (
        lambda bad: model().predict(X, max_memory=bad),
        {str(bad): (bad, "max_memory") for bad in (0, -1, "3")},
    ),
    "predict, seed": (lambda bad: model().predict(X, seed=bad), {str(bad): (bad, "seed") for bad in (-1, 1.5, "a")}),
    "predict, generator": (lambda bad: model().predict(X, generator=bad), {"3": (3, "generator")}),
    "predict, noise": (lambda bad: model().predict(X, noise=bad), {"shard": ("shard", "Did you mean 'shared'")}),
    "predict, likelihood": (lambda bad: model().predict(X, likelihood=bad), {"gues": ("gues", "likelihood")}),
    "draw": (lambda bad: model().draw(bad), {str(bad): (bad, "samples") for bad in (0, -1, 1.5, "3")}),
    "forward, draw": (lambda bad: model()(X, draw=bad), {"of another": ({"a": X}, "draw"), "a tensor": (X, "draw")}),
    "member": (lambda bad: model().member(bad), {str(bad): (bad, "index") for bad in (-1, 2, "0", 1.0, None)}),
    "member, sample": (lambda bad: model().member(0, sample=bad), {str(bad): (bad, "sample") for bad in (-1, "0")}),
    "kl": (lambda bad: model().kl(bad), {"max": ("max", "member_kl")}),
    "collect": (lambda bad: bad.collect(), {"rank1": (model(), "collects nothing")}),
    "refresh": (lambda bad: bad.refresh([X]), {"rank1": (model(), "no draws whose statistics")}),
    "check": (lambda bad: model().check(bad), {"empty": (X[:0], "example"), "None": (None, "tensor")}),
    "save_pretrained": (
        lambda bad: model().save_pretrained(bad),
        {"a file": (__file__, "folder"), "None": (None, "folder")},
    ),
    "load": (lambda bad: sb.load(bad, net()), {"no folder": ("/no/such", "save_pretrained"), "None": (None, "folder")}),
    **{
        f"{method}, net": (
            lambda bad, method=method: getattr(sb, method)(bad),
            {
                "None": (None, "net"),
                "a word": ("net", "net"),
                "a class": (nn.Linear, "net"),
                "a tensor": (X, "net"),
            },
        )
        for method in METHODS
    },
    "rank1, layers": (lambda bad: sb.rank1(bad), {"none": (nn.ReLU(), "a layer to convert")}),
    "deep_ensemble": (
        lambda bad: sb.deep_ensemble(bad),
        {
            "empty": ([], "networks"),
            "words": (["a"], "network"),
            "None": (None, "network"),
        },
    ),
    "ELBO, model": (lambda bad: sb.ELBO(bad, 6), {"a network": (net(), "model"), "None": (None, "model")}),
    "ELBO, num_data": (
        lambda bad: sb.ELBO(model(), bad),
        {str(bad): (bad, "num_data") for bad in (0, -1, 1.5, "3", math.nan)},
    ),
    "loss, targets": (
        lambda bad: sb.ELBO(model(), 6)(torch.zeros(2, 6, 3), bad),
        {
            "too few": (Y[:5], "targets"),
            "negative": (Y - 1, "targets"),
            "too large": (Y + 1, "targets"),
        },
    ),
    **{
        f"param_groups, {argument}": (
            lambda bad, argument=argument: model().param_groups(**{argument: bad}),
            {str(bad): (bad, argument) for bad in (-1, "a", math.nan)},
        )
        for argument in ("lr", "weight_decay", "factor_lr")
    },
    "BatchAxis": (lambda bad: sb.BatchAxis(*bad), {"a word": (("a", 0), "tensor"), "no such axis": ((X, 2), "dim")}),
    "MLP": (
        lambda bad: sb.nets.MLP(*bad),
        {
            "no inputs": ((0, [4], 3), "inputs"),
            "words": ((4, "ab", 3), "hidden"),
            "a negative width": ((4, [-1], 3), "hidden"),
            "half an output": ((4, [4], 1.5), "outputs"),
        },
    ),
    "LeNet": (
        lambda bad: sb.nets.LeNet(size=bad),
        {str(bad): (bad, "size") for bad in (3, "ab", (8, 2), (8, 8, 8))},
    ),
    "linear_annealing": (lambda bad: sb.linear_annealing(bad), {str(bad): (bad, "steps") for bad in (0, -1, "a")}),
    **{
        f"metrics.{name}": (
            lambda bad, name=name: scored(name, *bad),
            {
                "other lengths": ((PROBS, Y[:5]), "shape"),
                "a word": (("a", Y), "Expected argument"),
                "None": ((None, Y), "Expected argument"),
                "no targets": ((PROBS, None), "targets"),
                "negative classes": ((PROBS, Y - 1), "targets"),
                "classes too large": ((PROBS, Y + 1), "targets"),
                "halves": ((PROBS, Y + 0.5), "targets"),
                "nan": ((PROBS * math.nan, Y), "NaN"),
                "empty": ((PROBS[:0], Y[:0]), "at least one"),
                "an axis too many": ((PROBS[None], Y), "shape"),
            },
        )
        for name in ("accuracy", "negative_log_likelihood", "expected_calibration_error", "brier_score")
    },
    "metrics, bins": (
        lambda bad: sb.metrics.expected_calibration_error(PROBS, Y, bins=bad),
        {str(bad): (bad, "bins") for bad in (0, "a")},
    ),
    "interval": (lambda bad: real().interval(bad), {str(bad): (bad, "level") for bad in LEVELS}),
    "mean": (lambda bad: bad.mean, {"of classes": (classes(), "has no mean")}),
    "probs": (lambda bad: bad.probs, {"of a regression": (real(), "no class probabilities")}),
    "Gaussian": (lambda bad: sb.Gaussian(noise=bad), {str(bad): (bad, "noise") for bad in (-1.0, "x")}),
    "ConformalClassifier": (
        lambda bad: sb.ConformalClassifier(level=bad),
        {str(bad): (bad, "level") for bad in LEVELS},
    ),
    "ConformalRegressor": (lambda bad: sb.ConformalRegressor(level=bad), {str(bad): (bad, "level") for bad in LEVELS}),
    "TemperatureScaling": (
        lambda bad: sb.TemperatureScaling().fit(classes(), bad),
        {"too few targets": (Y[:5], "targets")},
    ),
    "low_rank": (
        lambda bad: sb.analysis.low_rank(*bad),
        {
            "no terms": ((sb.mean_field(net()), 0), "k"),
            "of rank1": ((model(), 2), "mean"),
        },
    ),
}
#: Options of methods, with values that they refuse.
OPTIONS = {
    "rank1": {
        "members": (0, -1, 1.5, "3"),
        "family": ("guess", None, 3),
        "prior_std": (0, -1, "a", None, math.nan, math.inf, 1e-30),
        "prior_mean": ("a", math.nan),
        "factors": ("all", None),
        "rank": (0, 1.5, "2"),
        "init": ("zeros", None),
        "init_spread": (-1, "a"),
        "dropout_rate": (-0.1, 1.0, "a", math.nan),
        "noise": ("none",),
        "train_on": ("deal",),
        "include": (3,),
        "exclude": (3,),
        "clip": ("a", -1),
    },
    "batch_ensemble": {"members": (0, "4")},
    "mean_field": {
        "prior_std": (0, -1, "a", math.nan, 1e-30),
        "estimator": ("guess", None),
        "init_std": (0, -1, "a"),
        "max_std": (0, "a"),
        "init_jitter": ("a", -1),
        "sample_per": ("x",),
        "init": ("x",),
        "prior": ("x",),
        "bayesian_bias": ("yes",),
    },
    "k_tied": {"k": (0, -1, 1.5, "2", None, 100), "prior_std": (0, "a", 1e-30), "untied": (3,)},
    "mc_dropout": {"rate": (-0.1, 1.0, "a", math.nan)},
    "swag": {"rank": (-1,)},
    "sgmcmc": {"keep": (0,)},
}
BAD = {
    **{
        f"{name}: {what}": (call, bad, word)
        for name, (call, bads) in CALLS.items()
        for what, (bad, word) in bads.items()
    },
    **{
        f"{method}({option}={bad!r})": (
            lambda bad, method=method, option=option: getattr(sb, method)(net(), **{option: bad}),
            bad,
            option,
        )
        for method, options in OPTIONS.items()
        for option, bads in options.items()
        for bad in bads
    },
}


def test_there_are_many():
    assert len(BAD) >= 115


@pytest.mark.parametrize("name", BAD)
def test_a_bad_argument_is_named(name):
    call, bad, word = BAD[name]
    with pytest.raises((ValueError, TypeError, FileNotFoundError)) as caught:
        call(bad)
    assert word in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) > 40  # more than a word: what was expected


@pytest.mark.parametrize("inputs", [5, 3])
def test_a_network_of_another_shape_does_not_load(tmp_path, inputs):
    model().save_pretrained(tmp_path)
    for other in (net(inputs), nn.Linear(4, 3), None):
        with pytest.raises((ValueError, TypeError), match="Expected argument `net`"):
            sb.load(tmp_path, other)
    with pytest.raises(ValueError, match="`device`.*'gpu'"):
        sb.load(tmp_path, net(), device="gpu")


def test_infinite_weights_are_blamed_and_masks_of_minus_infinity_are_none(tmp_path):
    spoilt = model()
    with torch.no_grad():
        spoilt.net[2].weight[0, 0] = math.nan
    with pytest.raises(ValueError, match=r"The weights are to blame: 2\.weight is not finite"):
        spoilt.predict(X)
    with torch.no_grad():
        spoilt.net[2].weight[0, 0] = math.inf  # before, label 0 with a confidence of nan, for some examples
    with pytest.raises(ValueError, match=r"output is (inf|nan) for example.*2\.weight is not finite"):
        spoilt.predict(X)
    logarithm = sb.mc_dropout(nn.Sequential(nn.Linear(4, 3), Logarithm()))
    with pytest.raises(ValueError, match="nan for example 0.*All weights are finite: a layer gave it"):
        logarithm.predict(X)
    masked = sb.mc_dropout(Masked())
    mask = torch.zeros(6, 4).masked_fill(torch.arange(4) > 1, -math.inf)
    assert masked.predict(X, mask).draws.isfinite().all()
    with pytest.raises(ValueError, match=r"infinite value.*first at \(0, 2\)"):
        masked.predict(X, -mask)
    logarithms = -torch.rand(6, 4)
    logarithms[0, 0], logarithms[3, 1] = 0, -math.inf  # before, such inputs were taken for a mask
    with pytest.raises(ValueError, match=r"infinite value.*first at \(3, 1\): -inf"):
        model().predict(logarithms)


def test_classes_that_the_network_rules_out_are_predicted():
    """A logit of minus infinity is a probability of 0."""

    class Without(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            return self.linear(x) + torch.tensor([0.0, 0.0, -math.inf])

    p = sb.rank1(Without(), members=2).predict(X)
    assert not p.probs[:, 2].any()
    torch.testing.assert_close(p.probs.sum(1), torch.ones(6))


class Logarithm(nn.Module):
    """Gives NaN."""

    def forward(self, x):
        """Return the logarithm of negative numbers."""
        return (-x.abs() - 1).log()


class Masked(nn.Module):
    """Adds a mask to scores."""

    def __init__(self):
        super().__init__()
        self.linear, self.drop, self.out = nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 3)

    def forward(self, x, mask):
        """Return what the softmax leaves."""
        return self.out(self.drop((self.linear(x) + mask).softmax(-1)))
