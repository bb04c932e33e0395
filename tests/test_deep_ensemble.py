"""Deep ensembles against plain torch loops over their members."""

from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import slimbayes as sb
from cases import NETWORKS
from slimbayes import batching

MEMBERS, BATCH, CLASSES = 3, 6, 2


def mlp(width=8):
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Tanh(), nn.Linear(width, CLASSES))


def examples():
    return torch.randn(BATCH, 4), torch.randint(CLASSES, (BATCH,))


def rows_of(members, first):
    """Return each member's rows of a batch that is dealt out in turn."""
    return [(torch.arange(BATCH) + first) % members == k for k in range(members)]


# ---------------------------------------------------------------------- gradients


@pytest.mark.parametrize("train_on", ["tile", "split"])
def test_members_that_train_together_take_the_steps_that_they_would_take_alone(train_on):
    model = sb.deep_ensemble(mlp, MEMBERS, train_on=train_on)
    alone = [model.member(k) for k in range(MEMBERS)]
    elbo = sb.ELBO(model, num_data=100)
    how = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    together = torch.optim.SGD(model.param_groups(how["lr"], how["weight_decay"]), momentum=how["momentum"])
    optimisers = [torch.optim.SGD(net.parameters(), **how) for net in alone]
    for step in range(5):
        x, y = examples()
        together.zero_grad()
        torch.manual_seed(step)
        elbo(model(x), y).backward()
        together.step()
        torch.manual_seed(step)
        rows = rows_of(MEMBERS, torch.randint(MEMBERS, (1,)))
        for k, (net, optimiser) in enumerate(zip(alone, optimisers, strict=True)):
            own = rows[k] if train_on == "split" else slice(None)
            optimiser.zero_grad()
            F.cross_entropy(net(x[own]), y[own]).backward()
            optimiser.step()
    for k, net in enumerate(alone):
        theirs = model.net.networks[k].state_dict()
        for name, value in net.state_dict().items():
            torch.testing.assert_close(theirs[name], value, rtol=0, atol=1e-6)


def test_shared_weights_see_the_average():
    model = sb.batch_ensemble(nn.Linear(4, CLASSES), members=MEMBERS, init="normal")
    x, y = examples()
    sb.ELBO(model, num_data=100)(model(x), y).backward()
    layer = model.net
    weight = layer.weight.detach().requires_grad_()
    for k in range(MEMBERS):
        inputs, outputs = layer.input_factor.loc[k].detach(), layer.output_factor.loc[k].detach()
        own = F.linear(x * inputs, weight) * outputs + layer.bias[k].detach()
        (F.cross_entropy(own, y) / MEMBERS).backward()
    torch.testing.assert_close(layer.weight.grad, weight.grad)


def test_the_mixture_is_trained_jointly():
    model = sb.deep_ensemble(mlp, MEMBERS)
    alone = [model.member(k) for k in range(MEMBERS)]
    x, y = examples()
    sb.ELBO(model, num_data=100, objective="mixture")(model(x), y).backward()
    probs = torch.stack([net(x).softmax(-1) for net in alone]).mean(0)
    F.nll_loss(probs.log(), y).backward()
    for k, net in enumerate(alone):
        for ours, theirs in zip(model.net.networks[k].parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)


# ---------------------------------------------------------------------- one pass for all


class Pair(NamedTuple):
    """A named tuple of outputs."""

    logits: torch.Tensor
    hidden: torch.Tensor


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, CLASSES)

    def forward(self, x, as_dict=False):
        hidden = self.body(x).relu()
        pair = Pair(self.head(hidden), hidden)
        return {**pair._asdict(), "loss": hidden.mean()} if as_dict else (pair, [hidden + 1])


class Shared(nn.Module):
    """Has an input that all rows share, as large as the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, BATCH)

    def forward(self, x, table, scale=1.0):
        return scale * self.body(x) @ table


class SequenceFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(4, 2), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(self.attention(x, x, x)[0])


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, CLASSES)

    def forward(self, x):
        y = self.body(x)
        return y if y.sum() > 0 else 2 * y


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, CLASSES)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


X = torch.linspace(-1, 1, BATCH * 4).view(BATCH, 4).cos()
SEQUENCE = torch.linspace(-3, 3, 7 * BATCH * 4).view(7, BATCH, 4).cos()
TABLE = torch.linspace(-1, 1, BATCH * CLASSES).view(BATCH, CLASSES)
#: How to build a network, options of the ensemble, inputs and keyword inputs.
CASES = {
    "mlp": (mlp, {}, (X,), {}),
    "nested": (Nested, {}, (X,), {}),
    "dict": (Nested, {}, (X,), {"as_dict": True}),
    "shared input": (Shared, {}, (X, sb.BatchAxis(TABLE, None)), {"scale": 2.0}),
    "batch on another axis": (Shared, {}, (sb.BatchAxis(X, 0),), {"table": sb.BatchAxis(TABLE, None)}),
    "sequence first": (SequenceFirst, {"batch_dim": 1}, (SEQUENCE,), {}),
    "resnet": (NETWORKS["resnet"].build, {}, (torch.ones(BATCH, 3, 9, 9),), {}),
    "transformer": (NETWORKS["transformer"].build, {}, (torch.arange(1, 7).expand(BATCH, 6),), {}),
}
#: What torch.func.vmap cannot run.
REFUSED = {
    "lstm": (Recurrent, {}, (SEQUENCE.transpose(0, 1).contiguous(),), {}),
    "branch": (Branching, {}, (X,), {}),
    "unlike": (None, {}, (X,), {}),
}


def made(name, **options):
    build, own, args, kwargs = {**CASES, **REFUSED}[name]
    networks = [mlp(width) for width in (3, 8, 5)] if build is None else [build() for _ in range(MEMBERS)]
    model = sb.deep_ensemble(networks, **own, **options).eval()
    return model, [network.eval() for network in networks], args, kwargs


def alone(networks, args, kwargs):
    """Return the tensors that the networks return one by one, stacked."""
    plain_args, plain_kwargs = batching.unmarked((args, kwargs))
    return [
        torch.stack(parts)
        for parts in zip(*(batching.tensors(net(*plain_args, **plain_kwargs)) for net in networks), strict=True)
    ]


@pytest.mark.parametrize("vectorised", [True, False])
@pytest.mark.parametrize("name", [*CASES, *REFUSED])
def test_the_pass_equals_the_members_one_by_one(name, vectorised):
    model, networks, args, kwargs = made(name, vectorised=vectorised)
    wanted = alone(networks, args, kwargs)
    for samples in (1, 2, 0):
        outputs = model(*args, samples=samples, **kwargs)
        for ours, theirs in zip(batching.tensors(outputs), wanted, strict=True):
            if theirs.dim() == 1:  # an auxiliary loss
                torch.testing.assert_close(ours, theirs.mean(), rtol=1e-5, atol=1e-5)
            else:
                each = theirs.repeat_interleave(max(samples, 1), 0)
                torch.testing.assert_close(ours, each, rtol=1e-5, atol=1e-5)
    if name == "dict":
        assert list(outputs) == ["logits", "hidden", "loss"]
    if name == "nested":
        assert isinstance(outputs[0], Pair)
        assert isinstance(outputs[1], list)
    if vectorised:
        assert model.net.refuses_vmap == (name in REFUSED)


@pytest.mark.parametrize("name", [*CASES, *REFUSED])
def test_gradients_through_the_vectorised_pass(name):
    model, networks, args, kwargs = made(name, vectorised=True)
    sum(x.square().mean() for x in batching.tensors(model(*args, **kwargs)) if x.dim()).backward()
    sum(x.square().mean() for x in alone(networks, args, kwargs) if x.dim() > 1).backward()
    for k, network in enumerate(networks):
        for ours, theirs in zip(model.net.networks[k].parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_packed_sequences_go_one_by_one():
    case = NETWORKS["lstm"]
    networks = [case.build().eval() for _ in range(MEMBERS)]
    packed = case.inputs(BATCH)
    outputs = sb.deep_ensemble(networks, vectorised=True).eval()(packed)
    torch.testing.assert_close(outputs, torch.stack([net(packed) for net in networks]))


# ---------------------------------------------------------------------- what does not go together


class TwoOutputs(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


@pytest.mark.parametrize("vectorised", [True, False])
@pytest.mark.parametrize(
    ("last", "told"),
    [
        (nn.Linear(4, 5), r"member 0 returns \(6, 2\) and member 2 \(6, 5\)"),
        (TwoOutputs(4, 2), r"member 2 \(6, 2\) and"),
    ],
)
def test_unlike_outputs_are_told_with_the_member(last, told, vectorised):
    model = sb.deep_ensemble([nn.Linear(4, 2), nn.Linear(4, 2), last], vectorised=vectorised).eval()
    with pytest.raises(ValueError, match=told):
        model(X)


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (nn.Linear(4, 2).double(), "one dtype, but member 0 has torch.float32 and member 2 torch.float64"),
        (nn.Linear(4, 2, device="meta"), "one device, but member 0 has cpu and member 2 meta"),
    ],
)
def test_unlike_types_and_places_are_told_with_the_member(last, told):
    with pytest.raises(ValueError, match=told):
        sb.deep_ensemble([nn.Linear(4, 2), nn.Linear(4, 2), last])


@pytest.mark.parametrize(
    ("networks", "members", "error", "told"),
    [
        (nn.Linear(4, 2), 3, ValueError, "different weights"),
        ([], None, ValueError, "some networks"),
        ([nn.Linear(4, 2), 3], None, TypeError, "but got int"),
        (mlp, 0, ValueError, "`members`"),
    ],
)
def test_what_is_no_ensemble(networks, members, error, told):
    with pytest.raises(error, match=told):
        sb.deep_ensemble(networks, members)


# ---------------------------------------------------------------------- storage, and one more member


def test_unlike_architectures_are_saved_and_loaded(tmp_path):
    model = sb.deep_ensemble([mlp(3), nn.Linear(4, CLASSES)]).eval()
    model.save_pretrained(tmp_path)
    loaded = sb.load(tmp_path, [mlp(3), nn.Linear(4, CLASSES)]).eval()
    torch.testing.assert_close(loaded(X), model(X), rtol=0, atol=0)
    with pytest.raises(ValueError, match="saved architecture"):
        sb.load(tmp_path, mlp(3))


def test_a_member_joins_a_trained_ensemble():
    model = sb.deep_ensemble(mlp, 2, train_on="split", vectorised=True)
    elbo = sb.ELBO(model, num_data=10, likelihood=sb.Gaussian(initial=0.3))
    before = model.eval()(X)
    new = mlp(5).eval()
    larger = sb.add_member(model, new)
    torch.testing.assert_close(larger(X), torch.cat([before, new(X).unsqueeze(0)]))
    assert (larger.members, larger.training, larger.options) == (3, False, {**model.options, "members": 3})
    assert larger.likelihood is not elbo.likelihood
    assert torch.equal(larger.likelihood.rho, elbo.likelihood.rho)
    assert not set(map(id, larger.parameters())) & {*map(id, model.parameters()), *map(id, new.parameters())}
    assert (model.members, sb.add_member(model.train(), new).training) == (2, True)
    fewer = sb.deep_ensemble([larger.member(0), larger.member(2)]).eval()
    torch.testing.assert_close(fewer(X), larger(X)[[0, 2]])


def test_members_join_deep_ensembles_only():
    with pytest.raises(TypeError, match="made by rank1"):
        sb.add_member(sb.rank1(nn.Linear(4, 2)), nn.Linear(4, 2))
    with pytest.raises(TypeError, match="made by swag"):  # its networks are centres of distributions
        sb.add_member(sb.swag(nn.Linear(4, 2)), nn.Linear(4, 2))
    with pytest.raises(TypeError, match="`network`"):
        sb.add_member(sb.deep_ensemble(mlp, 2), mlp)


class Scaled(nn.Module):
    """Computes with a number that its text does not show."""

    def __init__(self, scale) -> None:
        super().__init__()
        self.scale, self.body = scale, nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.scale * self.body(x)


def test_one_pass_runs_one_code_only():
    networks = [Scaled(scale) for scale in (1.0, 1.0, 3.0)]
    outputs = sb.deep_ensemble(networks, vectorised=True).eval()(X)
    torch.testing.assert_close(outputs, torch.stack([net(X) for net in networks]))
    assert not sb.deep_ensemble([Scaled(2.0), Scaled(2.0)], vectorised=True).net.refuses_vmap


def test_wrong_inputs_do_not_end_the_single_pass():
    model = sb.deep_ensemble(mlp, MEMBERS, vectorised=True).eval()
    with pytest.raises(RuntimeError):
        model(torch.zeros(BATCH, 5))
    assert not model.net.refuses_vmap


@pytest.mark.parametrize("vectorised", [True, False])
def test_logits_of_sequences_that_are_as_many_as_the_classes(vectorised):
    class Summary(nn.Linear):
        def forward(self, x):
            return super().forward(x.mean(0))

    networks = [Summary(4, BATCH) for _ in range(MEMBERS)]
    model = sb.deep_ensemble(networks, batch_dim=1, vectorised=vectorised).eval()
    torch.testing.assert_close(model(SEQUENCE), torch.stack([net(SEQUENCE) for net in networks]))
