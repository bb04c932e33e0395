"""The recurrent models of the rank-1 paper's Table 4: what is random in each, with which prior, at which price."""

from pathlib import Path

import pytest
import torch
from torch import distributions as td
from torch import nn
from torch.func import functional_call

import slimbayes as sb
from slimbayes.data.dataset import Task
from slimbayes.nets import RecordClassifier, SequenceClassifier
from slimbayes.training.models import build_model, build_objective
from slimbayes.training.networks import build_network
from slimbayes.training.parsing import load_config

CONFIGS = Path(__file__).parent.parent / "reproductions" / "configs"
VARIABLES, CONTEXT, WIDTH, HIDDEN, DENSE, BATCH = 6, 2, 4, 5, 7, 6


def records_net():
    torch.manual_seed(0)
    return RecordClassifier(VARIABLES, CONTEXT, 3, 24, WIDTH, HIDDEN, DENSE)


def some_records():
    generator = torch.Generator().manual_seed(1)
    variables = torch.randint(1, VARIABLES, (BATCH, 8), generator=generator)
    variables[0, 3:] = 0
    times, values = 72 * torch.rand(BATCH, 8, generator=generator), torch.randn(BATCH, 8, generator=generator)
    return times, variables, values, torch.randn(BATCH, CONTEXT, generator=generator)


def text_net():
    torch.manual_seed(0)
    return SequenceClassifier(vocabulary=11, embedding=WIDTH, hidden=HIDDEN)


def some_text():
    return (torch.randint(11, (BATCH, 9), generator=torch.Generator().manual_seed(1)),)


NETS = {
    "records": (records_net, some_records, {"variable.weight", "slope.weight"}),
    "text": (text_net, some_text, {"embedding.weight"}),
}
EMBEDDINGS = {"include": nn.Embedding, "prior_std": 1.0, "init_std": 0.0486}
each_net = pytest.mark.parametrize(("build", "inputs", "tables"), NETS.values(), ids=NETS)
each_estimator = pytest.mark.parametrize("estimator", ["reparameterization", "local", "flipout"])


def of_net(name):
    """Return the network's name of a weight from that of its posterior."""
    return name.replace(".posteriors.", ".").removesuffix("_posterior")


def by_hand(net, inputs, draw, sample=0):
    """Run the plain network with the drawn weights in their places."""
    return functional_call(net, {of_net(name): values[sample] for name, values in draw.items()}, inputs)


@each_net
def test_bayesian_embeddings_are_random_in_the_embeddings_alone(build, inputs, tables):
    net, x = build(), inputs()
    model = sb.mean_field(net, **EMBEDDINGS)
    assert {of_net(part.name) for part in model.stochastic()} == tables
    assert {f"{name}.weight" for name in model.summary().converted} == tables
    draw = model.draw(3)
    outputs = model(*x, draw=draw)
    for sample in range(3):
        torch.testing.assert_close(outputs[sample], by_hand(net, x, draw, sample))


@each_net
def test_fully_bayesian_is_random_in_every_parameter(build, inputs, tables):
    net, x = build(), inputs()
    model = sb.mean_field(net, prior_std=1.0)
    assert {of_net(part.name) for part in model.stochastic()} == {name for name, _ in net.named_parameters()}
    assert not model.summary().left
    draw = model.draw(2)
    outputs = model(*x, draw=draw)
    for sample in range(2):
        torch.testing.assert_close(outputs[sample], by_hand(net, x, draw, sample))


@each_estimator
@each_net
def test_priors_are_standard_normals(build, inputs, tables, estimator):
    """The KL of each table to N(0, 1), without the token for padding, which is no vector to learn."""
    net = build()
    for options, names in (
        (EMBEDDINGS, tables),
        ({"prior_std": 1.0, "init_std": 0.0486}, dict(net.named_parameters())),
    ):
        model = sb.mean_field(net, estimator=estimator, **options)
        expected = torch.zeros(())
        for part in model.stochastic():
            mean, scale = part.mean.detach(), part.spread.values().detach()
            if build is records_net and of_net(part.name) in tables:
                mean, scale = mean[1:], scale[1:]
            expected += td.kl_divergence(td.Normal(mean, scale), td.Normal(0.0, 1.0)).sum()
            assert ((scale > 0.02) & (scale < 0.08)).all()  # 0.0486, the reference's softplus(-3), give or take a tenth
        assert len(list(model.stochastic())) == len(names)
        torch.testing.assert_close(model.kl().detach(), expected)


def test_parameters_of_the_record_models():
    tables = 2 * VARIABLES * WIDTH
    lstm_biases = 2 * 4 * HIDDEN
    kernels = 4 * HIDDEN * (WIDTH + HIDDEN) + DENSE * (HIDDEN + CONTEXT) + DENSE
    biases = lstm_biases + DENSE + 1
    plain = tables + kernels + biases
    # Input and output channels of the LSTM's two kernels, of the dense layer and of the head.
    channels = (WIDTH + 4 * HIDDEN) + (HIDDEN + 4 * HIDDEN) + (HIDDEN + CONTEXT + DENSE) + (DENSE + 1)
    count, members = sb.count_parameters, 4
    assert count(sb.deterministic(records_net())) == plain
    assert count(sb.mean_field(records_net(), **EMBEDDINGS)) == plain + tables
    assert count(sb.mean_field(records_net())) == 2 * plain
    own = members * channels + (members - 1) * biases
    assert count(sb.batch_ensemble(records_net(), members)) == plain + own
    rank1 = sb.rank1(records_net(), members, embedding="mean_field")
    assert count(rank1) == plain + own + members * channels + tables


def test_parameters_of_the_text_models():
    """The LSTM has one bias for each gate, as in Keras: the second one is no parameter in any of them."""
    plain = 11 * WIDTH + 4 * HIDDEN * (WIDTH + HIDDEN + 1) + HIDDEN + 1
    count = sb.count_parameters
    assert count(text_net()) == plain
    assert count(sb.mean_field(text_net(), **EMBEDDINGS)) == plain + 11 * WIDTH
    assert count(sb.mean_field(text_net())) == 2 * plain
    model = sb.mean_field(text_net(), exclude=nn.Embedding)  # the k-tied paper's LSTM
    assert count(model) == 2 * plain - 11 * WIDTH


@each_net
def test_members_of_the_rank_1_model_share_the_embeddings_distribution(build, inputs, tables):
    """Rank-1 factors on the LSTM and the dense layers; one normal posterior for each table, drawn for each member."""
    model = sb.rank1(build(), members=3, embedding="mean_field", noise="shared")
    shapes = {of_net(part.name): part.at_location(0).shape for part in model.stochastic()}
    assert {name for name in shapes if "factor" not in name} == tables
    assert {name.split(".")[0] for name in set(shapes) - tables} == (
        {"lstm", "dense", "head"} if build is records_net else {"lstm", "head"}
    )
    draw = model.draw(2)
    for name, values in draw.items():
        if of_net(name) in tables:
            assert values.shape == (6, *dict(build().named_parameters())[of_net(name)].shape)
            assert not torch.equal(values[0], values[2])


# ---------------------------------------------------------------------- configurations


EXPECTED = {
    "mimic_deterministic": set(),
    "mimic_batch_ensemble": {"lstm", "dense", "head"},
    "mimic_bayesian_embeddings": {"variable", "slope"},
    "mimic_fully_bayesian": {"variable", "slope", "lstm", "dense", "head"},
    "mimic_rank1": {"variable", "slope", "lstm", "dense", "head"},
    "mimic_rank1_cauchy": {"variable", "slope", "lstm", "dense", "head"},
}


def test_every_configuration_is_listed_in_the_documents():
    assert {path.stem for path in CONFIGS.glob("mimic_*.yaml")} == set(EXPECTED)
    text = (CONFIGS.parent.parent / "docs" / "training.md").read_text()
    for name in EXPECTED:
        assert f"reproductions/configs/{name}.yaml" in text


@pytest.mark.parametrize("name", EXPECTED)
def test_configurations_build_what_they_say(name):
    config = load_config(CONFIGS / f"{name}.yaml", ["net.hidden=6", "net.dense=5", "net.bags=3", "net.bag_hours=24"])
    task = Task("bernoulli", 1, (8,), vocabulary=VARIABLES, context=CONTEXT)
    model = build_model(config.method, lambda: build_network(config.net, task))
    assert set(model.summary().converted) == EXPECTED[name]
    objective = build_objective(config, model, task, num_data=100, steps=config.steps)
    loss = objective(model(*some_records()), torch.tensor([0.0, 1, 0, 1, 0, 1]))
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    random = any(part.scale.any() for part in model.stochastic())
    assert config.evaluation.samples == (25 if random else 1)
    prediction = model.predict(*some_records(), samples=config.evaluation.samples)
    assert prediction.probs.isfinite().all()


@pytest.mark.parametrize("name", EXPECTED)
def test_configurations_have_the_values_of_table_7(name):
    """Of the rank-1 rows; the others have the reference's prior of embeddings, for all weights in Fully Bayesian."""
    config = load_config(CONFIGS / f"{name}.yaml")
    options, cauchy = config.method.options, name.endswith("cauchy")
    if config.method.name == "mean_field":
        assert (options["prior_std"], options["init_std"]) == (1.0, 0.0486)
    if config.method.name == "rank1":
        assert options["embedding"] == "mean_field"
        assert (options["prior_std"], options["dropout_rate"]) == ((1e-4, 5e-7) if cauchy else (0.1, 1e-3))
        assert options.get("prior_mean", 1.0) == (0.5 if cauchy else 1.0)
        assert config.annealing.fraction * config.steps == pytest.approx(694_216 if cauchy else 20_000, rel=1e-4)
        assert config.batch_size * options["members"] == (32 if cauchy else 128)
