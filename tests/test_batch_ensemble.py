"""Every option of BatchEnsemble against a loop over the members, written out layer by layer."""

import inspect
import json
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import slimbayes as sb
from cases import BATCH as CASE_BATCH
from cases import NETWORKS
from slimbayes.training.config import Method
from slimbayes.training.models import build_model

MEMBERS, BATCH = 3, 6
OPTIONS = {
    "rank": (1, 2),
    "factors": ("both", "input", "output"),
    "member_bias": (True, False),
    "member_norm": (True, False),
}
EVERY = [dict(zip(OPTIONS, values, strict=True)) for values in product(*OPTIONS.values())]


def small_net():
    torch.manual_seed(0)
    parts = {"conv": nn.Conv2d(2, 4, 3), "norm": nn.BatchNorm2d(4), "tanh": nn.Tanh(), "flat": nn.Flatten()}
    net = nn.Sequential()
    for name, part in {**parts, "head": nn.Linear(36, 5)}.items():
        net.add_module(name, part)
    nn.init.normal_(net.norm.weight)
    return net.double()


def some_images():
    return torch.randn(BATCH, 2, 5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.double)


def differing(model):
    """Give members biases and norms of their own, so that a mix-up would show."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def scale(parameters, layer, k, shape):
    """Return the sum over j of r_j s_j^T of member k: (out, in)."""
    factors = []
    for side, channels in (("output", shape[0]), ("input", shape[1])):
        loc = parameters.get(f"net.{layer}.{side}_factor.loc")
        factors.append(None if loc is None else loc[k].view(-1, channels))
    r, s = factors
    terms = len(s if r is None else r)
    ones = torch.ones(terms, 1, dtype=torch.double)
    r, s = (ones.expand(terms, shape[0]) if r is None else r), (ones.expand(terms, shape[1]) if s is None else s)
    return sum(torch.outer(r[j], s[j]) for j in range(terms))


def by_loop(parameters, hands):
    """Return each member's outputs, from the model's parameters by name and each member's inputs."""

    def weight(layer, k):
        shared = parameters[f"net.{layer}.weight"]
        own = scale(parameters, layer, k, shared.shape)
        return shared * own.view(*own.shape, *(1,) * (shared.dim() - 2))

    def bias(layer, k):
        found = parameters[f"net.{layer}.bias"]
        return found[k] if found.dim() == 2 else found

    maps = [F.conv2d(x, weight("conv", k), bias("conv", k)) for k, x in enumerate(hands)]
    if "net.norm.weight" in parameters:  # shared: it sees the rows of all members together
        affine = parameters["net.norm.weight"], parameters["net.norm.bias"]
        maps = F.batch_norm(torch.cat(maps), None, None, *affine, training=True).chunk(len(hands))
    else:
        names = [[f"net.norm.norms.{k}.{part}" for part in ("weight", "bias")] for k in range(len(hands))]
        maps = [
            F.batch_norm(x, None, None, *(parameters[one] for one in own), training=True)
            for x, own in zip(maps, names, strict=True)
        ]
    return [F.linear(x.tanh().flatten(1), weight("head", k), bias("head", k)) for k, x in enumerate(maps)]


def compare_gradients(model, parameters, outputs, expected):
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2), dtype=torch.double)
    (outputs * weights).sum().backward()
    (expected * weights).sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, parameters[name].grad, msg=name)


@pytest.mark.parametrize("options", EVERY, ids=lambda options: "-".join(map(str, options.values())))
def test_tiled_training_equals_a_loop_over_members(options):
    model, x = differing(sb.batch_ensemble(small_net(), MEMBERS, **options)), some_images()
    parameters = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    outputs, expected = model(x), torch.stack(by_loop(parameters, [x] * MEMBERS))
    torch.testing.assert_close(outputs, expected)
    compare_gradients(model, parameters, outputs, expected)


@pytest.mark.parametrize("options", EVERY, ids=lambda options: "-".join(map(str, options.values())))
def test_split_training_deals_each_example_to_one_member(options):
    model, x = differing(sb.batch_ensemble(small_net(), MEMBERS, train_on="split", **options)), some_images()
    parameters = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    outputs = model(x)
    assert outputs.shape == (1, BATCH, 5)
    dealt = []
    for first in range(MEMBERS):  # whose turn it is first is random
        hands = [[b for b in range(BATCH) if (first + b) % MEMBERS == k] for k in range(MEMBERS)]
        answers = torch.cat(by_loop(parameters, [x[hand] for hand in hands]))
        dealt.append(answers[torch.tensor([b for hand in hands for b in hand]).argsort()].unsqueeze(0))
    (expected,) = [one for one in dealt if torch.allclose(one, outputs)]
    compare_gradients(model, parameters, outputs, expected)
    assert model.eval()(x).shape == (MEMBERS, BATCH, 5)


@pytest.mark.parametrize("options", [{}, {"rank": 2, "member_norm": True}], ids=["plain", "rank2_norm"])
@pytest.mark.parametrize("network", NETWORKS)
def test_split_training_of_every_network_in_the_table(network, options):
    """A batch that cannot be dealt out evenly; norms use running statistics, so that examples do not mix."""
    torch.manual_seed(0)
    model = differing(sb.batch_ensemble(NETWORKS[network].build(), MEMBERS, train_on="split", **options))
    x = NETWORKS[network].inputs(CASE_BATCH)
    for module in model.modules():
        module.train(module is model)
    outputs = model(x)
    alone = torch.stack([model.member(k).eval()(x) for k in range(MEMBERS)])
    turns = [torch.tensor([(first + b) % MEMBERS for b in range(CASE_BATCH)]) for first in range(MEMBERS)]
    expected = [alone[turn, torch.arange(CASE_BATCH)].unsqueeze(0) for turn in turns]
    assert sum(torch.allclose(outputs, one, rtol=1e-4, atol=1e-5) for one in expected) == 1


@pytest.mark.parametrize("member_norm", [True, False])
def test_running_statistics_are_a_members_own(member_norm):
    model = sb.batch_ensemble(small_net(), MEMBERS, member_norm=member_norm)
    x = some_images()
    model(x)
    own = [F.conv2d(x, *(p for p in model.member(k).conv.parameters())).detach() for k in range(MEMBERS)]
    norms = model.net.norm.norms if member_norm else [model.net.norm]
    for norm, rows in zip(norms, own if member_norm else [torch.cat(own)], strict=True):
        torch.testing.assert_close(norm.running_mean, 0.1 * rows.mean((0, 2, 3)))
        torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * rows.var((0, 2, 3)))


@pytest.mark.parametrize("rank", [1, 2])
def test_initial_factors(rank):
    def head(init, **options):
        torch.manual_seed(0)
        layer = sb.batch_ensemble(nn.Linear(300, 200), 4, rank=rank, init=init, **options).net
        return layer.input_factor.loc.detach(), layer.output_factor.loc.detach() * rank  # the terms add up

    for signs in head("sign"):
        assert set(signs.flatten().tolist()) == {-1.0, 1.0}
        assert abs(signs.mean()) < 4 / signs.numel() ** 0.5  # four standard errors of a mean of signs
    for ones in head("ones"):
        assert (ones == 1).all()
    for values in head("normal", init_spread=0.2):
        count = values.numel()
        assert abs(values.mean() - 1) < 4 * 0.2 / count**0.5
        assert abs(values.std() - 0.2) < 4 * 0.2 / (2 * count) ** 0.5


def test_members_begin_as_the_network_with_ones():
    net, x = small_net().eval(), some_images()
    for options in EVERY:
        model = sb.batch_ensemble(net, MEMBERS, init="ones", **options).eval()
        torch.testing.assert_close(model(x), net(x).expand(MEMBERS, BATCH, 5))


@pytest.mark.parametrize("options", [{}, {"rank": 2, "member_norm": True, "train_on": "split"}])
def test_fast_weights_have_no_weight_decay(options):
    model = sb.batch_ensemble(small_net(), MEMBERS, **options)
    names = {id(p): name for name, p in model.named_parameters()}
    slow, fast = model.param_groups(lr=0.1, weight_decay=3e-4, factor_lr=0.05)
    assert (slow["weight_decay"], slow["lr"], fast["weight_decay"], fast["lr"]) == (3e-4, 0.1, 0.0, 0.05)
    assert sorted(names[id(p)] for p in fast["params"]) == [
        f"net.{layer}.{side}_factor.loc" for layer in ("conv", "head") for side in ("input", "output")
    ]
    assert len(slow["params"]) + len(fast["params"]) == len(names)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rank": 2, "member_norm": True, "member_bias": False, "train_on": "split", "factors": "input", "init": "sign"},
        {"prior_family": "normal", "prior_std": 0.3, "perturbation": "additive", "clip": 2.0},
        {"freeze_base": True, "init_spread": 0.1},
    ],
)
def test_a_saved_one_is_a_batch_ensemble_again(options, tmp_path):
    model, x = sb.batch_ensemble(small_net(), 2, **options), some_images()
    model.save_pretrained(tmp_path)
    again = sb.load(tmp_path, small_net())
    assert again.method == model.method == "batch_ensemble"
    assert "batch_ensemble, members=2" in repr(model)
    assert again.options == model.options
    assert torch.equal(again.eval()(x), model.eval()(x))
    assert torch.equal(again.kl(), model.kl())


def test_older_files_that_call_it_rank1_still_load(tmp_path):
    model, x = sb.batch_ensemble(small_net(), 2, rank=2), some_images()
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "method": "rank1", "checksum": None}))
    assert torch.equal(sb.load(tmp_path, small_net()).eval()(x), model.eval()(x))


def test_it_has_the_arguments_of_rank1_but_for_the_scale_of_a_posterior():
    ours, theirs = (inspect.signature(method).parameters for method in (sb.batch_ensemble, sb.rank1))
    assert set(theirs) - set(ours) == {"dropout_rate"}
    assert set(ours) <= set(theirs)
    differing_defaults = {name for name in ours if ours[name].default != theirs[name].default}
    assert differing_defaults == {"family"}


def test_configurations_can_set_its_options():
    model = build_model(Method(name="batch_ensemble", members=2, init_spread=0.0, rank=2, member_bias=False), small_net)
    assert (model.members, model.options["rank"]) == (2, 2)
    assert (model.net.head.input_factor.loc == 1).all()
    with pytest.raises(ValueError, match=r"`method`.*'init_spred'.*Did you mean 'init_spread'"):
        build_model(Method(name="batch_ensemble", init_spred=0.1), small_net)


def test_other_families_are_rank1():
    with pytest.raises(ValueError, match="`family` of batch_ensemble to be 'delta', but got 'normal'. Use sb.rank1"):
        sb.batch_ensemble(nn.Linear(2, 2), family="normal")
