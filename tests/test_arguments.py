"""One table of wrong arguments: each error names the argument, the value and what to do."""

import math

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.families import StudentT, get_family

X, Y = torch.zeros(4, 3), torch.tensor([0, 1, 1, 0])


def net() -> nn.Module:
    return nn.Linear(3, 2)


def rank1(**options) -> sb.BayesianModel:
    return sb.rank1(net(), **options)


def mean_field(**options) -> sb.BayesianModel:
    return sb.mean_field(net(), **options)


def k_tied(k=2, **options) -> sb.BayesianModel:
    return sb.k_tied(net(), k, **options)


def elbo(num_data=10, likelihood="categorical", **options) -> sb.ELBO:
    return sb.ELBO(rank1(members=2), num_data, likelihood, **options)


def loss(targets: torch.Tensor, **options) -> torch.Tensor:
    objective = elbo(**options)
    return objective(objective.model(X), targets)


def sequence_first(x: torch.Tensor) -> torch.Tensor:
    return sb.rank1(nn.LSTM(3, 2), batch_dim=1)(x)


#: The call, and what the message must hold: the argument, the value, the advice.
VALUES = {
    "a family for a BatchEnsemble": (
        lambda: sb.batch_ensemble(net(), family="normal"),
        ["`family`", "'normal'", "sb.rank1"],
    ),
    # The network and the members
    "members=0": (lambda: rank1(members=0), ["`members`", "0", "such as 4"]),
    "members=-1": (lambda: rank1(members=-1), ["`members`", "-1", "such as 4"]),
    "members=2.5": (lambda: rank1(members=2.5), ["`members`", "2.5", "integer"]),
    "members=True": (lambda: rank1(members=True), ["`members`", "True", "integer"]),
    "members='4'": (lambda: rank1(members="4"), ["`members`", "'4'", "integer"]),
    # Distributions
    "unknown family": (lambda: rank1(family="gausian"), ["`family`", "'gausian'", "'normal'"]),
    "family misspelt": (lambda: rank1(family="cauchi"), ["`family`", "'cauchi'", "Did you mean 'cauchy'"]),
    "family of another type": (lambda: rank1(family=3), ["`family`", "3", "'normal'"]),
    "prior-only family": (lambda: rank1(family="half_cauchy"), ["`family`", "'half_cauchy'", "`prior_family`"]),
    "df=0": (lambda: StudentT(df=0.0), ["`df`", "0.0", "heavy tails"]),
    "df=-1 by dict": (lambda: rank1(family={"name": "student_t", "df": -1.0}), ["`df`", "-1.0"]),
    "df of a normal": (lambda: get_family("normal", df=3.0), ["`family`", "df", "3.0"]),
    "unknown prior": (lambda: rank1(prior_family="laplas"), ["`prior_family`", "'laplas'", "'normal'"]),
    "half-Cauchy under normal": (
        lambda: rank1(prior_family="half_cauchy"),
        ["`prior_family`", "'half_cauchy'", "family='log_normal'"],
    ),
    "delta under normal": (lambda: rank1(prior_family="delta"), ["`prior_family`", "'delta'", "Leave it out"]),
    "prior_std=0": (lambda: rank1(prior_std=0.0), ["`prior_std`", "0.0"]),
    "prior_std=-0.1": (lambda: rank1(prior_std=-0.1), ["`prior_std`", "-0.1"]),
    "prior_std=nan": (lambda: rank1(prior_std=math.nan), ["`prior_std`", "nan"]),
    "prior_mean=inf": (lambda: rank1(prior_mean=math.inf), ["`prior_mean`", "inf"]),
    "log-normal around -1": (
        lambda: rank1(family="log_normal", prior_mean=-1.0),
        ["`prior_mean`", "-1.0", "positive"],
    ),
    "log-normal with signs": (lambda: rank1(family="log_normal", init="sign"), ["`init`", "'sign'", "'ones'"]),
    "log-normal added": (
        lambda: rank1(family="log_normal", perturbation="additive"),
        ["`perturbation`", "'additive'", "'multiplicative'"],
    ),
    "unknown prior_scale": (lambda: rank1(prior_scale="learned"), ["`prior_scale`", "'learned'", "'trainable'"]),
    "positive prior under points": (
        lambda: rank1(family="delta", prior_family="half_cauchy"),
        ["`prior_family`", "'half_cauchy'", "infinite"],
    ),
    "light tails under a Cauchy": (
        lambda: rank1(family="cauchy", prior_family="normal"),
        ["`prior_family`", "'normal'", "infinite", "'student_t'"],
    ),
    "a prior that would shrink onto points": (
        lambda: rank1(family="delta", prior_family="normal", prior_scale="trainable"),
        ["`prior_scale`", "'trainable'", "inverse_gamma"],
    ),
    "trainable prior of points": (
        lambda: sb.batch_ensemble(nn.Linear(3, 2), prior_scale="trainable"),
        ["`prior_scale`", "'trainable'"],
    ),
    "prior-only families are no choice": (lambda: rank1(family="gaussian"), ["`family`", "'gaussian'", "'normal'"]),
    "a converted network": (lambda: sb.rank1(rank1()), ["`net`", "converted already", "member(0)"]),
    "no weights": (lambda: sb.rank1(nn.ReLU()), ["`net`", "no module has weights"]),
    "scale_prior of a Cauchy": (
        lambda: rank1(family="cauchy", scale_prior="half_cauchy"),
        ["`prior_family`", "'cauchy'", "prior_scale='trainable'"],
    ),
    # Factors
    "unknown factors": (lambda: rank1(factors="inputs"), ["`factors`", "'inputs'", "Did you mean 'input'"]),
    "rank=0": (lambda: rank1(rank=0), ["`rank`", "0", "papers use 1"]),
    "rank=1.5": (lambda: rank1(rank=1.5), ["`rank`", "1.5", "integer"]),
    "additive of rank 2": (lambda: rank1(rank=2, perturbation="additive"), ["`rank`", "2", "additive"]),
    "unknown init": (lambda: rank1(init="one"), ["`init`", "'one'", "Did you mean 'ones'"]),
    "init_spread=-1": (lambda: rank1(init_spread=-1.0), ["`init_spread`", "-1.0"]),
    "dropout_rate=0": (lambda: rank1(dropout_rate=0.0), ["`dropout_rate`", "0.0", "try 1e-3"]),
    "dropout_rate=1": (lambda: rank1(dropout_rate=1.0), ["`dropout_rate`", "1.0", "try 1e-3"]),
    "unknown perturbation": (lambda: rank1(perturbation="add"), ["`perturbation`", "'add'", "'additive'"]),
    "clip=0": (lambda: rank1(clip=0.0), ["`clip`", "0.0", "10"]),
    # Gaussian weights
    "k=0": (lambda: k_tied(0), ["`k`", "0", "such as 2"]),
    "k=-1": (lambda: k_tied(-1), ["`k`", "-1", "such as 2"]),
    "k=1.5": (lambda: k_tied(1.5), ["`k`", "1.5", "integer"]),
    "k=True": (lambda: k_tied(True), ["`k`", "True", "integer"]),
    "k=None": (lambda: k_tied(None), ["`k`", "None", "sb.mean_field"]),
    "unknown estimator": (lambda: mean_field(estimator="flip"), ["`estimator`", "'flip'", "Did you mean 'flipout'"]),
    "unknown prior of weights": (lambda: mean_field(prior="hee"), ["`prior`", "'hee'", "Did you mean 'he'"]),
    "prior_std=0 of weights": (lambda: k_tied(prior_std=0.0), ["`prior_std`", "0.0", "0.2 or 0.3"]),
    "prior_std=nan of weights": (lambda: mean_field(prior_std=math.nan), ["`prior_std`", "nan", "0.2 or 0.3"]),
    "unknown init of means": (lambda: k_tied(init="net"), ["`init`", "'net'", "'network'"]),
    "init=-1 of means": (lambda: mean_field(init=-1.0), ["`init`", "-1.0", "standard deviation"]),
    "init=True of means": (lambda: mean_field(init=True), ["`init`", "True", "standard deviation"]),
    "init_std=0": (lambda: mean_field(init_std=0), ["`init_std`", "0", "0.01"]),
    "init_std=inf": (lambda: k_tied(init_std=math.inf), ["`init_std`", "inf", "0.01"]),
    "init_jitter=-0.1": (lambda: k_tied(init_jitter=-0.1), ["`init_jitter`", "-0.1", "0.1"]),
    "max_std=0": (lambda: mean_field(max_std=0.0), ["`max_std`", "0.0", "0.2"]),
    "init_std above max_std": (
        lambda: k_tied(init_std=0.5, max_std=0.2),
        ["`init_std`", "0.5", "max_std=0.2"],
    ),
    "unknown sample_per": (lambda: mean_field(sample_per="batches"), ["`sample_per`", "'batches'", "'batch'"]),
    "local noise per batch": (
        lambda: k_tied(estimator="local", sample_per="batch"),
        ["`sample_per`", "'batch'", "estimator='flipout'"],
    ),
    "unknown noise of weights": (lambda: k_tied(noise="exampl"), ["`noise`", "'exampl'", "Did you mean 'example'"]),
    "untied of nothing": (lambda: k_tied(untied="lin"), ["`untied`", "'lin'", "picks none"]),
    "untied of no layer": (lambda: k_tied(untied=nn.Conv2d), ["`untied`", "Conv2d", "picks none"]),
    "batch_dim=-1 of weights": (lambda: mean_field(batch_dim=-1), ["`batch_dim`", "-1"]),
    "member=1 of 1": (lambda: mean_field().member(1), ["`index`", "1", "0 to 0"]),
    "max_norm of a table": (
        lambda: sb.mean_field(nn.Embedding(4, 2, max_norm=1.0)),
        ["max_norm=1.0", "build it without"],
    ),
    "weights converted already": (lambda: sb.k_tied(mean_field()), ["`net`", "converted already", "member(0)"]),
    # The model
    "unknown noise": (lambda: rank1(noise="exampl"), ["`noise`", "'exampl'", "Did you mean 'example'"]),
    "unknown train_on": (lambda: rank1(train_on="splits"), ["`train_on`", "'splits'", "Did you mean 'split'"]),
    "batch_dim=-1": (lambda: rank1(batch_dim=-1), ["`batch_dim`", "-1"]),
    "unknown embedding": (lambda: rank1(embedding="mean-field"), ["`embedding`", "'mean-field'", "'mean_field'"]),
    "embedding_prior_std=0": (lambda: rank1(embedding_prior_std=0), ["`embedding_prior_std`", "0"]),
    "include of nothing": (lambda: rank1(include="lin"), ["`include`", "'lin'", "picks none"]),
    # The forward pass
    "samples=-1": (lambda: rank1()(X, samples=-1), ["`samples`", "-1", "Use 0"]),
    "samples=1.5": (lambda: rank1()(X, samples=1.5), ["`samples`", "1.5", "integer"]),
    "noise typo": (lambda: rank1()(X, noise="shred"), ["`noise`", "'shred'", "Did you mean 'shared'"]),
    "rank 0": (lambda: rank1()(torch.tensor(7.0)), ["rank 0", "7.0", "batch, even of one"]),
    "no batch axis": (lambda: rank1()(torch.zeros(3)), ["shape (12,)", "batch, even of one"]),
    "empty batch": (lambda: rank1()(X[:0]), ["at least one example", "empty"]),
    "another draw": (
        lambda: rank1()(X, draw={"nonsense": torch.zeros(4, 3)}),
        ["`draw`", "nonsense", "model.draw()"],
    ),
    "draw of no samples": (lambda: rank1().draw(0), ["`samples`", "0"]),
    "sequence without batch": (lambda: sequence_first(torch.zeros(5, 3)), ["shape (5, 12)", "batch, even of one"]),
    # Prediction
    "NaN": (lambda: rank1().predict(X + math.nan), ["`predict`", "NaN", "12 of them", "Impute"]),
    "batch_size=0": (lambda: rank1().predict(X, batch_size=0), ["`batch_size`", "0"]),
    "max_memory=0": (lambda: rank1().predict(X, max_memory=0), ["`max_memory`", "0"]),
    "seed and generator": (
        lambda: rank1().predict(X, seed=1, generator=torch.Generator()),
        ["`seed`", "`generator`", "seed=1", "Give one"],
    ),
    "unknown likelihood of a prediction": (
        lambda: rank1().predict(X, likelihood="normal"),
        ["`likelihood`", "'normal'", "'gaussian'"],
    ),
    "member=4 of 4": (lambda: rank1().member(4), ["`index`", "4", "0 to 3"]),
    "member=-1": (lambda: rank1().member(-1), ["`index`", "-1", "0 to 3"]),
    # The objective
    "num_data=0": (lambda: elbo(0), ["`num_data`", "0", "not the batch size"]),
    "num_data=10.0": (lambda: elbo(10.0), ["`num_data`", "10.0", "integer"]),
    "unknown objective": (lambda: elbo(objective="mean"), ["`objective`", "'mean'", "'average'"]),
    "unknown likelihood": (lambda: elbo(likelihood="bernouli"), ["`likelihood`", "'bernouli'", "Did you mean"]),
    "likelihood class": (lambda: elbo(likelihood=sb.Gaussian), ["`likelihood`", "Gaussian", "'gaussian'"]),
    "unknown member_kl": (lambda: elbo(member_kl="average"), ["`member_kl`", "'average'", "'mean'"]),
    "beta=-1": (lambda: elbo(beta=-1.0), ["`beta`", "-1.0", "at least 0"]),
    "beta='linear'": (lambda: elbo(beta="linear"), ["`beta`", "'linear'"]),
    "averaged function": (
        lambda: elbo(likelihood=lambda o, t: o.sum(-1), objective="marginal_probs"),
        ["`likelihood`", "function", "another objective"],
    ),
    "annealing over 0 steps": (lambda: sb.linear_annealing(0), ["`steps`", "0", "len(loader)"]),
    "annealing over half a step": (lambda: sb.linear_annealing(0.5), ["`steps`", "0.5", "integer"]),
    "target out of range": (lambda: loss(Y + 1), ["`targets`", "got 2", "0 to 1", "output for each class"]),
    "target negative": (lambda: loss(Y - 1), ["`targets`", "got -1", "0 to 1"]),
    "targets of draws": (lambda: loss(Y.expand(2, 4)), ["`targets`", "(2, 4)", "(4,)", "pass model(x)"]),
    "real targets of classes": (lambda: loss(Y.float()), ["`targets`", "(4,)", "(4, 2)", "integers"]),
    "yes or no out of range": (
        lambda: loss(torch.full((4, 2), 3), likelihood="bernoulli"),
        ["`targets`", "got 3", "'categorical'"],
    ),
    "real targets of another shape": (
        lambda: loss(torch.zeros(4), likelihood="gaussian"),
        ["`targets`", "(4,)", "(4, 2)", "Reshape"],
    ),
}

TYPES = {
    "no network": (lambda: sb.rank1(None), ["`net`", "NoneType", "Module"]),
    "a class for a network": (lambda: sb.rank1(nn.Linear), ["`net`", "type", "Module"]),
    "a function for a network": (lambda: sb.batch_ensemble(torch.relu), ["`net`", "Module"]),
    "a plain network in the ELBO": (lambda: sb.ELBO(net(), 10), ["`model`", "Linear", "sb.rank1(net)"]),
    "an unknown option": (lambda: rank1(memberz=3), ["memberz"]),
    "an unknown option of weights": (lambda: mean_field(k=3), ["'k'"]),
    "untied of another type": (lambda: k_tied(untied=3), ["`untied`", "3", "predicate"]),
    "no network for weights": (lambda: sb.k_tied(None), ["`net`", "NoneType", "Module"]),
}


def check(call, words: list[str], kind: type[Exception]) -> None:
    with pytest.raises(kind) as error:
        call()
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("case", VALUES)
def test_a_wrong_value_is_named_with_a_remedy(case: str) -> None:
    check(*VALUES[case], ValueError)


@pytest.mark.parametrize("case", TYPES)
def test_a_wrong_type_is_named_with_a_remedy(case: str) -> None:
    check(*TYPES[case], TypeError)


def test_rows_of_the_table() -> None:
    with pytest.raises(ValueError, match=r"`scale_prior`.*'half_cauchi'.*Did you mean 'half_cauchy'"):
        sb.rank1(nn.Linear(3, 2), scale_prior="half_cauchi")
    model = sb.rank1(nn.Linear(3, 2), members=2)
    with pytest.raises(ValueError, match=r"`sample`.*0 to 1.*got 2"):
        model.member(0, sample=2, draw=model.draw(2))
    with pytest.raises(ValueError, match=r"`sample`.*-1"):
        model.member(0, sample=-1)


def test_misspelt_keywords_name_the_models_own():
    model, x = sb.rank1(torch.nn.Sequential(torch.nn.Linear(3, 2)), members=2), torch.randn(4, 3)
    with pytest.raises(
        TypeError, match="the model's predict nor the network has an argument 'sample'. Did you mean 's"
    ):
        model.predict(x, sample=4)
    with pytest.raises(TypeError, match="the model's forward nor the network .*'sampels'. Did you mean 'samples'"):
        model(x, sampels=4)
    with pytest.raises(TypeError, match="'mask'. The network's are input"):
        model.predict(x, mask=x)


def test_several_heads_are_named():
    class Heads(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x):
            return {"class": self.layer(x), "box": x}

    model, x = sb.rank1(Heads(), members=2), torch.randn(4, 3)
    with pytest.raises(ValueError, match=r"\['class', 'box'\].*elbo\(model\(x\)\['class'\], y\).*p.draws\['class'\]"):
        sb.ELBO(model, 10)(model(x), torch.zeros(4, dtype=torch.long))
