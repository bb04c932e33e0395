"""MC dropout: its moments, its masks and where they stand, a network's own dropout, storage and misuse."""

import copy
import json
import pickle

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.layers.dropout_mask import hashed
from test_check import AcrossExamples, Concatenated, Sorted, TimeOnTheLeft

RATE = 0.3


def seeded(seed=3):
    return torch.Generator().manual_seed(seed)


def mlp(*between):
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), *between, nn.Linear(8, 3)).double()


def ones(*shape):
    """Return a convolution or linear layer's worth of nothing but ones, so that outputs show the mask."""
    layer = nn.Conv2d(*shape, 1, bias=False) if len(shape) == 2 else nn.Linear(shape[0], shape[0], bias=False)
    with torch.no_grad():
        layer.weight.zero_()
        for i in range(min(layer.weight.shape[:2])):
            layer.weight[i, i] = 1
    return layer


# ---------------------------------------------------------------------- moments


def assert_moments(draws, mean, variance):
    """Within five standard errors; that of a variance is taken from the draws' own fourth moments."""
    count = draws.shape[0]
    error = draws - mean
    assert ((draws.mean(0) - mean).abs() <= 5 * (variance / count).sqrt() + 1e-12).all()
    spread = (error**2).std(0) / count**0.5
    assert (((error**2).mean(0) - variance).abs() <= 5 * spread + 1e-12).all()


@pytest.mark.parametrize("unit", ["filter", "element"])
@pytest.mark.parametrize("noise", ["example", "shared"])
@pytest.mark.parametrize("place", ["before", "after"])
def test_moments_of_a_linear_layer_are_the_closed_forms(place, unit, noise):
    layer, x = nn.Linear(5, 4).double(), torch.randn(3, 5).double()
    model = sb.mc_dropout(layer, RATE, place=place, unit=unit, noise=noise, include="")
    with torch.no_grad():
        draws, y = model(x, samples=20_000, generator=seeded()), layer(x)
        variance = (x**2) @ (layer.weight**2).T if place == "before" else y**2
    assert_moments(draws, y, RATE / (1 - RATE) * variance)


@pytest.mark.parametrize("place", ["before", "after"])
def test_moments_of_a_convolution_are_the_closed_forms(place):
    layer, x = nn.Conv2d(4, 6, 3, padding=1, groups=2).double(), torch.randn(2, 4, 3, 3).double()
    model = sb.mc_dropout(layer, RATE, place=place, include="")
    with torch.no_grad():
        draws, y = model(x, samples=10_000, generator=seeded()), layer(x)
        variance = y**2
        if place == "before":  # each channel's whole contribution comes or goes
            parts = [layer(x * mask.view(1, 4, 1, 1)) - layer(0 * x) for mask in torch.eye(4).double()]
            variance = sum(part**2 for part in parts)
    assert_moments(draws, y, RATE / (1 - RATE) * variance)


# ---------------------------------------------------------------------- masks


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("unit", ["filter", "element"])
@pytest.mark.parametrize("noise", ["example", "shared"])
def test_what_is_dropped_at_once(place, unit, noise):
    model = sb.mc_dropout(ones(6, 6), RATE, place=place, unit=unit, noise=noise, include="")
    zero = model(torch.ones(4, 6, 5, 5), samples=400) == 0  # (samples, examples, channels, h, w)
    whole = (zero == zero[..., :1, :1]).all()
    assert whole == (unit == "filter")
    assert (zero == zero[:, :1]).all() == (noise == "shared")
    independent = 400 * 6 * (4 if noise == "example" else 1) * (25 if unit == "element" else 1)
    assert zero.double().mean().item() == pytest.approx(RATE, abs=5 * (RATE * (1 - RATE) / independent) ** 0.5)


@pytest.mark.parametrize("recurrence", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"place": "after"}, {"unit": "element"}])
def test_the_masks_of_a_recurrence_are_constant_over_time(recurrence, options):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = recurrence(3, 4, num_layers=2, batch_first=True)

        def forward(self, x):
            return self.cell(x)[0]

    net, x = Net(), torch.randn(5, 7, 3)
    model = sb.mc_dropout(net, 0.5, include="cell", **options)
    assert model.summary().parts[0].reason == "dropout before it, rate 0.5, filter-wise"
    draw = model.draw(1, seeded())
    # The oracle: Gal and Ghahramani's masks on the columns of each kernel, in torch's own recurrence.
    for name, mask in draw.items():
        kernel = name.removeprefix("cell.factors.").removesuffix("_input")
        getattr(net.cell, f"weight_{kernel}").data.mul_(mask[0])
    torch.testing.assert_close(model(x, draw=draw)[0], net(x))


@pytest.mark.parametrize("unit", ["filter", "element"])
def test_a_layer_that_is_called_twice_keeps_its_mask(unit):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(4, 4)

        def forward(self, x):
            return self.f(x) - self.f(x)

    model = sb.mc_dropout(Twice(), 0.5, unit=unit)
    x = torch.randn(5, 4)
    assert not model(x, samples=3).any()
    assert not model(x, samples=3, noise="shared").any()
    own = sb.mc_dropout(mlp(nn.Dropout(0.5)))
    assert not torch.equal(own(x.double()), own(x.double()))


def test_what_is_merged_into_the_batch_is_part_of_the_example():
    class Merged(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(3, 3)

        def forward(self, x):
            return self.f(x.flatten(0, 1)).unflatten(0, x.shape[:2])

    net, x = Merged(), torch.randn(5, 7, 3)
    merged, whole = (sb.mc_dropout(one, 0.5, unit="element") for one in (net, net.f))
    draw = whole.draw(4)
    torch.testing.assert_close(merged(x, draw={"f.input_factor": draw["input_factor"]}), whole(x, draw=draw))


def test_the_seeds_of_element_wise_masks_give_uniform_and_independent_bits():
    seeds, count = torch.randint(2**62, (64,), generator=seeded()), 4096
    bits = hashed(seeds.unsqueeze(1), torch.arange(count))
    uniform = bits.double() / 2.0**64 + 0.5
    values = uniform.flatten().sort().values
    grid = (torch.arange(len(values)).double() + 0.5) / len(values)
    assert (values - grid).abs().max() < 1.95 / len(values) ** 0.5  # Kolmogorov-Smirnov at 0.1%
    each_bit = torch.stack([(bits >> i) & 1 for i in range(64)]).double().mean((1, 2))
    assert ((each_bit - 0.5).abs() < 5 * 0.5 / len(values) ** 0.5).all()
    centred = (uniform - 0.5) * 12**0.5  # variance 1
    limit = 5 / count**0.5
    between_seeds = centred @ centred.T / count
    assert (between_seeds - torch.diag(between_seeds.diag())).abs().max() < limit
    for lag in (1, 2, 3, 8, 64, 1024):
        correlation = (centred[:, lag:] * centred[:, :-lag]).mean()
        assert correlation.abs() < 5 / (64 * (count - lag)) ** 0.5
    neighbours = hashed(torch.arange(64).unsqueeze(1), torch.arange(count)).double() / 2.0**63
    assert (neighbours[1:] * neighbours[:-1]).mean().abs() * 3 < 5 / (63 * count) ** 0.5


# ---------------------------------------------------------------------- shared draws


@pytest.mark.parametrize("options", [{"place": "before"}, {"place": "after"}, {"unit": "element"}])
@pytest.mark.parametrize("network", [mlp, lambda: mlp(nn.Dropout(0.5))])
def test_a_shared_draw_is_one_function_across_chunks(options, network):
    model, x = sb.mc_dropout(network(), 0.4, noise="shared", **options).eval(), torch.randn(9, 4).double()
    whole = model.predict(x, samples=4, seed=1).draws
    for size in (1, 2, 5):
        torch.testing.assert_close(model.predict(x, samples=4, seed=1, batch_size=size).draws, whole)
    twice = model.predict(torch.cat([x, x]), samples=4, seed=1).draws
    torch.testing.assert_close(twice[:, :9], twice[:, 9:])


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_folded_member_is_the_draw_with_masked_columns_or_rows(place):
    net, x = mlp(), torch.randn(6, 4).double()
    model = sb.mc_dropout(net, 0.5, place=place)
    draw = model.draw(2, seeded())
    folded = model.member(0, sample=1, draw=draw)
    torch.testing.assert_close(folded(x), model(x, draw=draw)[1])
    if place == "before":
        torch.testing.assert_close(folded[0].weight, net[0].weight * draw["0.input_factor"][1])
        torch.testing.assert_close(folded[0].bias, net[0].bias)
    else:
        torch.testing.assert_close(folded[0].weight, net[0].weight * draw["0.output_factor"][1].unsqueeze(1))
        torch.testing.assert_close(folded[0].bias, net[0].bias * draw["0.output_factor"][1])
        assert torch.equal(folded[-1].weight, net[-1].weight)


def test_dropout_after_attention_is_on_each_projection_with_its_bias():
    attention, x = nn.MultiheadAttention(4, 2, batch_first=True).double(), torch.randn(3, 5, 4).double()
    nn.init.normal_(attention.in_proj_bias)
    net = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).double()
    net.self_attn = attention
    model = sb.mc_dropout(net, 0.5, place="after", include="self_attn").eval()
    draw = model.draw(1, seeded())
    qkv = torch.cat([draw[f"self_attn.factors.{p}_output"][0] for p in "qkv"])
    with torch.no_grad():
        attention.in_proj_weight.mul_(qkv.unsqueeze(1))
        attention.in_proj_bias.mul_(qkv)
        attention.out_proj.weight.mul_(draw["self_attn.out_proj.output_factor"][0].unsqueeze(1))
        attention.out_proj.bias.mul_(draw["self_attn.out_proj.output_factor"][0])
        torch.testing.assert_close(model(x, draw=draw)[0], net.eval()(x))


# ---------------------------------------------------------------------- the network's own dropout


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Dropout, (6,)),
        (nn.Dropout, (6, 3, 3)),
        (nn.Dropout1d, (6, 7)),
        (nn.Dropout2d, (6, 3, 3)),
        (nn.Dropout3d, (6, 2, 3, 2)),
    ],
)
@pytest.mark.parametrize("noise", ["example", "shared"])
def test_own_dropout_has_torchs_distribution_in_prediction(module, shape, noise):
    net = nn.Sequential(nn.Identity(), module(RATE), nn.Linear(shape[-1], 2)).double()
    model, x = sb.mc_dropout(net, noise=noise).eval(), torch.ones(4, *shape).double()
    seen = []
    model.net[1].register_forward_hook(lambda layer, inputs, output: seen.append(output.detach()))
    model(x, samples=500, generator=seeded())
    ours = seen[0].view(500, 4, *shape)
    theirs = net[1].train()(x.repeat(500, *[1] * len(shape))).view(500, 4, *shape)
    assert ours.unique().tolist() == pytest.approx(theirs.unique().tolist())
    assert (ours == ours[:, :1]).all() == (noise == "shared")
    whole = [(y.flatten(3) == y.flatten(3)[..., :1]).all() if y.dim() > 3 else True for y in (ours, theirs)]
    assert whole[0] == whole[1]
    independent = ours[:, 0].numel() // (1 if not whole[0] or ours.dim() < 4 else ours[0, 0, 0].numel())
    assert (ours == 0).double().mean().item() == pytest.approx(RATE, abs=5 * (RATE * (1 - RATE) / independent) ** 0.5)
    torch.testing.assert_close(model(x, samples=0)[0], net.eval()(x))


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Dropout1d, (9,)),
        (nn.Dropout2d, (9,)),
        (nn.Dropout2d, (9, 5)),
        (nn.Dropout3d, (9, 5)),
        (nn.Dropout3d, (9, 5, 5)),
    ],
)
@pytest.mark.filterwarnings("ignore:dropout.d. Received a")
def test_own_dropout_of_channels_reads_missing_dimensions_as_torch_does(module, shape):
    """Along which axes a mask is constant."""
    net, x = nn.Sequential(module(0.5), nn.Linear(shape[-1], 2)), torch.ones(8, *shape)
    ours = sb.mc_dropout(net)
    ours.net[0].register_forward_hook(lambda layer, inputs, output: seen.append(output == 0))
    seen = [net[0](x) == 0]
    ours(x)
    constant = [[(zero == zero.narrow(axis, 0, 1)).all().item() for axis in range(zero.dim())] for zero in seen]
    assert constant[0] == constant[1]


class Again(nn.Module):
    """One module for all places where something is dropped, as many networks have it."""

    def __init__(self, dropout):
        super().__init__()
        self.dropout, self.head = dropout, nn.Linear(1, 1)

    def forward(self, x):
        return torch.stack([self.dropout(x), self.dropout(x), self.dropout(x)], -1)


@pytest.mark.parametrize("noise", ["example", "shared"])
@pytest.mark.parametrize("dropout", [nn.Dropout(0.5), nn.Dropout1d(0.5), nn.AlphaDropout(0.5)])
def test_own_dropout_that_is_called_twice_has_two_masks_as_in_torch(dropout, noise):
    if isinstance(dropout, nn.AlphaDropout) and noise == "shared":
        return
    model, x = sb.mc_dropout(Again(dropout), noise=noise).eval(), torch.ones(2, 5000, 1)
    masks = (model(x, generator=seeded())[0, 0, :, 0] > 0.5).T.double()
    # Independent, the correlations are N(0, 1 / 5000).
    assert (torch.corrcoef(masks) - torch.eye(3)).abs().max() < 4.5 / 5000**0.5
    assert masks.mean().item() == pytest.approx(0.5, abs=4.5 * 0.5 / 15000**0.5)
    if noise == "shared":
        whole, chunks = (model.predict(x, samples=3, seed=1, batch_size=size).draws for size in (2, 1))
        assert torch.equal(whole, chunks)
        draw = model.draw(2)
        assert torch.equal(model(x, draw=draw), model(x, draw=draw))


class Inside(nn.Module):
    """Dropout where only torch's kernels see it."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 4, num_layers=2, dropout=0.5, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x, _ = self.lstm(x)
        return self.head(self.attention(x, x, x, need_weights=False)[0][:, -1])


def test_own_dropout_inside_kernels_stays_on_and_obeys_the_generator():
    net, x = Inside(), torch.randn(5, 6, 4)
    model = sb.mc_dropout(net).eval()
    assert model.summary().converted == ["lstm", "attention"]
    before = torch.get_rng_state()
    first, again = (model.predict(x, samples=3, seed=1).draws for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, again)
    assert not torch.equal(first, model.predict(x, samples=3, seed=2).draws)
    assert not torch.equal(first[0], first[1])
    assert not any(module.training for module in model.modules())
    torch.testing.assert_close(model(x, samples=0)[0], net.eval()(x))
    torch.manual_seed(4)
    ours = model(x)[0]
    torch.manual_seed(4)
    torch.testing.assert_close(ours, net.train()(x))  # the same numbers in the same order
    twin = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert torch.equal(twin(x, generator=seeded()), model(x, generator=seeded()))
    assert [type(m) for m in model.member(0).modules()] == [type(m) for m in net.modules()]
    for use in (lambda: model(x, noise="shared"), lambda: model(x, draw=model.draw())):
        with pytest.raises(ValueError, match=r"Layer lstm is a LSTM with dropout inside.*noise='example'"):
            use()
    with pytest.raises(ValueError, match="cannot be folded into weights"):
        model.member(0, sample=0)


def test_own_dropout_inside_kernels_leaves_the_generators_of_other_devices(monkeypatch):
    seeded_devices = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded_devices.append)
    sb.mc_dropout(Inside())(torch.randn(5, 6, 4), generator=seeded())
    assert seeded_devices == []


@pytest.mark.parametrize("batch_first", [True, False])
def test_own_dropout_of_transformers(batch_first):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=batch_first)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    model = sb.mc_dropout(net, batch_dim=0 if batch_first else 1).eval()
    assert len(model.summary().converted) == 8
    x = torch.randn(5, 6, 8) if batch_first else torch.randn(6, 5, 8)
    draws = model.predict(x, samples=3, seed=1).draws
    assert not torch.equal(draws[0], draws[1])
    torch.testing.assert_close(model(x, samples=0)[0], net(x))
    plain = sb.mc_dropout(net, exclude=nn.MultiheadAttention, batch_dim=0 if batch_first else 1).eval()
    shared = plain.predict(x, samples=3, seed=1, noise="shared").draws
    part = x[:2] if batch_first else x[:, :2]
    alone = plain.predict(part, samples=3, seed=1, noise="shared").draws
    torch.testing.assert_close(shared[:, :2] if batch_first else shared[:, :, :2], alone)


def test_other_dropout_keeps_torchs_meaning():
    net, x = mlp(nn.Dropout(0.5)), torch.randn(5, 4).double()
    model = sb.mc_dropout(net, 0.2, place="before")
    assert type(model.net[2]) is nn.Dropout
    assert not torch.equal(model(x, samples=0), model(x, samples=0))
    model.eval()
    assert torch.equal(model(x, samples=0), model(x, samples=0))


# ---------------------------------------------------------------------- protocol


def test_no_parameters_are_added():
    net = mlp(nn.Dropout(0.5))
    for options in ({}, {"place": "before"}, {"place": "after"}, {"place": "before", "unit": "element"}):
        model = sb.mc_dropout(net, **options)
        assert list(model.net.state_dict()) == list(net.state_dict())
        assert model.kl().item() == 0
        assert model.method == "mc_dropout"
        assert model.members == 1


def test_the_default_place_is_the_networks_own_dropout_if_there_is_any():
    assert sb.mc_dropout(mlp(nn.Dropout(0.5))).summary().converted == ["2"]
    assert sb.mc_dropout(mlp(nn.Dropout(0.0))).summary().converted == ["0", "3"]
    assert sb.mc_dropout(mlp(nn.LSTM(8, 8, dropout=0.0))).summary().converted == ["0", "2", "3"]
    summary = sb.mc_dropout(mlp(nn.Dropout(0.25))).summary()
    assert summary.parts[1].reason == "its own dropout, rate 0.25"
    assert "point estimate" in summary.left["0"]


def test_summary_tells_where_dropout_stands():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    summary = sb.mc_dropout(net, 0.1, place="after", unit="element").summary()
    assert summary.parts[0].reason == "dropout after it, rate 0.1, element-wise"
    assert "norms" in summary.left["1"]
    assert "the last layer's outputs are the answer" in summary.left["3"]
    assert sb.mc_dropout(net, place="after", include=["0", "3"]).summary().converted == ["0", "3"]


@pytest.mark.parametrize(
    "options",
    [{}, {"place": "before"}, {"place": "after", "noise": "shared"}, {"place": "before", "unit": "element"}],
)
def test_a_saved_model_predicts_the_same(tmp_path, options):
    model, x = sb.mc_dropout(mlp(nn.Dropout(0.5)), 0.2, **options), torch.randn(5, 4).double()
    model.likelihood = sb.Categorical()
    model.save_pretrained(tmp_path)
    again = sb.load(tmp_path, mlp(nn.Dropout(0.5)))
    assert again.options == model.options
    assert again.summary().converted == model.summary().converted
    for twin in (again, pickle.loads(pickle.dumps(model))):
        assert torch.equal(model.predict(x, samples=30, seed=1).probs, twin.predict(x, samples=30, seed=1).probs)


@pytest.mark.parametrize(("rate", "found"), [(0.4, "0.4"), (0.0, "0"), (1.0, "1")])
def test_a_saved_model_is_not_loaded_into_a_network_with_other_rates(tmp_path, rate, found):
    net = nn.Sequential(mlp(nn.Dropout(0.5)), nn.Dropout(0.2))
    sb.mc_dropout(net).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"`net` to have dropout of rate 0.2 in its module '1'.*but got {found}\."):
        sb.load(tmp_path, nn.Sequential(mlp(nn.Dropout(0.5)), nn.Dropout(rate)))
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["checksum"]
    config["options"]["rate"] = 0.1  # as earlier versions wrote it
    path.write_text(json.dumps(config))
    assert sb.load(tmp_path, nn.Sequential(mlp(nn.Dropout(0.5)), nn.Dropout(0.4))).options["rate"]["1"] == 0.4


def test_training_is_ordinary_dropout_training():
    """With the same masks, the gradient is the one that torch's own dropout gives."""
    net, x = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)).double(), torch.randn(6, 4).double()
    model = sb.mc_dropout(net[1], 0.5, unit="element")
    torch.manual_seed(2)
    model(x).square().sum().backward()
    torch.manual_seed(2)
    mask = (torch.rand(6, 4) >= 0.5) / 0.5
    net[1](x * mask).square().sum().backward()
    torch.testing.assert_close(model.net.weight.grad, net[1].weight.grad)


@pytest.mark.filterwarnings(r"ignore:std\(\). degrees of freedom is <= 0:UserWarning")  # of one example, torch's own
@pytest.mark.parametrize("network", [Concatenated, Sorted, TimeOnTheLeft, AcrossExamples])
@pytest.mark.parametrize("unit", ["filter", "element"])
def test_rows_out_of_order_are_found_with_one_member(network, unit):
    model = sb.mc_dropout(network(), 0.5, unit=unit)
    with pytest.raises(ValueError, match="does not keep its rows in order"):
        model.check(torch.randn(6, 8), torch.randn(6, 8))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"rate": 0.0}, r"`rate` to be a finite number above 0 and below 1, but got 0.0.*probability of a zero"),
        ({"rate": 1.0}, "`rate`.*but got 1.0"),
        ({"rate": "0.1"}, "`rate`.*but got '0.1'"),
        ({"place": "behind"}, "`place` to be one of 'own', 'before', 'after', but got 'behind'"),
        ({"unit": "filters"}, "`unit` to be one of .*Did you mean 'filter'"),
        ({"noise": "row"}, "`noise`"),
        ({"place": "own"}, r"dropout modules.*place='own'.*'before' or 'after'.*functional.dropout"),
        ({"exclude": "9"}, "`exclude` to pick some module"),
    ],
)
def test_misuse_has_a_clear_error(options, error):
    with pytest.raises(ValueError, match=error):
        sb.mc_dropout(mlp(), **options)


def test_misuse_of_networks_has_a_clear_error():
    with pytest.raises(TypeError, match="`net` to be a torch.nn.Module"):
        sb.mc_dropout(3)
    with pytest.raises(ValueError, match="layers before its last one for place='after', but it has 1 in all"):
        sb.mc_dropout(nn.Linear(3, 2), place="after")
    with pytest.raises(ValueError, match="rate between 0 and 1 for place='own'"):
        sb.mc_dropout(mlp(nn.Dropout(1.0)), place="own")
    with pytest.raises(ValueError, match="converted already"):
        sb.mc_dropout(sb.mc_dropout(mlp(nn.Dropout(0.5))), place="own")


def test_the_first_convolution_keeps_all_colours_unless_it_is_asked_for():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.LazyLinear(2))
    net(torch.zeros(1, 3, 8, 8))
    model = sb.mc_dropout(net)
    assert model.summary().converted == ["1", "3"]
    assert "colours" in model.summary().left["0"]
    assert sb.mc_dropout(net, include=["0", "1"]).summary().converted == ["0", "1"]
    assert sb.mc_dropout(net, unit="element").summary().converted == ["0", "1", "3"]
