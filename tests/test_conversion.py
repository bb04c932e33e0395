"""Which layers are converted, what is left and why, and that the given network stays as it was."""

import copy
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import slimbayes as sb
from slimbayes import conversion
from slimbayes.layers.rank1 import Rank1


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn, self.conv2 = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1, bias=False)

    def forward(self, x):
        return x + self.conv2(self.bn(self.conv1(x)).relu())


class Net(nn.Module):
    """Convolutions, norms, an embedding and a head, nested."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.layer1, self.layer2 = nn.Sequential(Block(), Block()), nn.Sequential(Block())
        self.head = nn.Sequential(OrderedDict(norm=nn.LayerNorm(4), fc=nn.Linear(4, 2)))
        self.classes = nn.Embedding(3, 2)

    def forward(self, x, label):
        return self.head(self.layer2(self.layer1(self.stem(x))).mean((2, 3))) + self.classes(label)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 3, 5, 5), torch.tensor([0, 1, 2, 0])


CONVS = [f"{block}.{conv}" for block in ("layer1.0", "layer1.1", "layer2.0") for conv in ("conv1", "conv2")]
EVERYTHING = ["stem", *CONVS, "head.fc"]

CHOICES = {
    "all": ({}, EVERYTHING),
    "full name": ({"include": "layer1.0.conv1"}, ["layer1.0.conv1"]),
    "suffix": ({"include": "conv2"}, [name for name in CONVS if name.endswith("conv2")]),
    "suffix of two parts": ({"include": "0.conv2"}, ["layer1.0.conv2", "layer2.0.conv2"]),
    "subtree": ({"include": "layer1"}, [name for name in CONVS if name.startswith("layer1")]),
    "glob": ({"include": "layer?.0.*"}, [name for name in CONVS if ".0." in name]),
    "class": ({"include": nn.Linear}, ["head.fc"]),
    "predicate": (
        {"include": lambda name, module: getattr(module, "bias", 0) is None},
        [n for n in CONVS if "v2" in n],
    ),
    "list": ({"include": ["stem", nn.Linear]}, ["stem", "head.fc"]),
    "tuple": ({"include": ("stem", "layer2")}, ["stem", *[name for name in CONVS if name.startswith("layer2")]]),
    "exclude suffix": ({"exclude": "conv2"}, [name for name in EVERYTHING if not name.endswith("conv2")]),
    "exclude class": ({"exclude": nn.Conv2d}, ["head.fc"]),
    "exclude list": ({"exclude": ["layer?.*", "fc"]}, ["stem"]),
    "exclude predicate": ({"exclude": lambda name, module: "." in name}, ["stem"]),
    "exclude wins": ({"include": "layer1", "exclude": "layer1.1"}, ["layer1.0.conv1", "layer1.0.conv2"]),
}


@pytest.mark.parametrize("case", CHOICES)
def test_choice_of_layers(case: str) -> None:
    options, expected = CHOICES[case]
    model = sb.rank1(Net(), members=2, **options)
    assert model.summary().converted == expected
    found = [name for name, module in model.net.named_modules() if isinstance(module, Rank1)]
    assert found == expected
    assert model(*inputs()).shape == (2, 4, 2)


def test_what_is_left_says_why() -> None:
    left = sb.rank1(Net(), exclude="stem").summary().left
    assert left["stem"] == "excluded"
    assert "member_norm=True" in left["layer1.0.bn"]
    assert "member_norm=True" in left["head.norm"]
    assert "embedding='mean_field'" in left["classes"]
    assert "not included" in sb.rank1(Net(), include="stem").summary().left["head.fc"]


WRONG_CHOICES = {
    "misspelt": ({"include": "layer1.0.conv3"}, ["`include`", "'layer1.0.conv3'", "layer1.0.conv1"]),
    "misspelt in list": ({"include": ["stem", "hed.fc"]}, ["`include`", "'hed.fc'", "head.fc"]),
    "misspelt exclusion": ({"exclude": "stm"}, ["`exclude`", "'stm'", "stem"]),
    "nothing like it": ({"include": "zzzzzz"}, ["`include`", "'zzzzzz'", "The names are: stem"]),
    "glob without match": ({"include": "block*"}, ["`include`", "'block*'"]),
    "class that is not there": ({"exclude": nn.LSTM}, ["`exclude`", "LSTM", "picks none"]),
    "norm by name": (
        {"include": ["stem", "layer1.0.bn"]},
        ["layer1.0.bn (BatchNorm2d)", "member_norm=True", "exclude"],
    ),
    "embedding by name": ({"include": "classes"}, ["classes (Embedding)", "embedding='mean_field'"]),
    "all excluded": ({"exclude": [nn.Conv2d, nn.Linear]}, ["layer to convert", "stem (Conv2d): excluded"]),
    "predicate of nothing": (
        {"include": lambda name, module: False},
        ["layer to convert", "stem (Conv2d): not included"],
    ),
}


@pytest.mark.parametrize("case", WRONG_CHOICES)
def test_wrong_choices_are_named(case: str) -> None:
    options, words = WRONG_CHOICES[case]
    with pytest.raises(ValueError) as error:  # noqa: PT011
        sb.rank1(Net(), **options)
    for word in words:
        assert word in str(error.value)


class OwnForward(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.abs(), self.bias)


class SameForward(nn.Linear):
    """A subclass that keeps Linear's forward is a Linear."""


def weird(layer: nn.Module) -> nn.Module:
    return nn.Sequential(OrderedDict(odd=layer, plain=nn.Linear(3, 4)))


LEFT = {
    "parametrized bias": (
        lambda: parametrize.register_parametrization(nn.Linear(3, 3), "bias", nn.Tanh()),
        ["bias is parametrized", "remove_parametrizations"],
    ),
    "own forward": (lambda: OwnForward(3, 3), ["Linear with a forward of its own", "register a converter"]),
    "unknown class": (lambda: nn.PReLU(3), ["no converter", "PReLU"]),
}


@pytest.mark.parametrize("case", LEFT)
def test_layers_that_cannot_be_converted_are_left_with_the_reason(case: str) -> None:
    build, words = LEFT[case]
    net = weird(build()).eval()
    model = sb.rank1(net, members=2, init="ones")
    assert model.summary().converted == ["plain"]
    for word in words:
        assert word in model.summary().left["odd"]
    x = torch.randn(4, 3)
    # At the location every member is the network itself, odd layer included.
    for output in model(x, samples=0):
        torch.testing.assert_close(output, net(x))


@pytest.mark.parametrize("case", LEFT)
def test_asking_for_a_layer_that_cannot_be_converted_is_an_error(case: str) -> None:
    build, words = LEFT[case]
    net = weird(build())
    for include in ("odd", ["odd", "plain"], type(net.odd), lambda name, module: name == "odd"):
        with pytest.raises(ValueError, match=r"Cannot convert odd \(") as error:
            sb.rank1(net, include=include)
        for word in [*words, "`include`", "`exclude`"]:
            assert word in str(error.value)


def test_a_subclass_that_keeps_forward_is_converted_and_folds_back() -> None:
    model = sb.rank1(weird(SameForward(3, 3)), members=2)
    assert model.summary().converted == ["odd", "plain"]
    assert type(model.member(0).odd) is SameForward


# ---------------------------------------------------------------------- the given network and the root


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", [{}, {"freeze_base": True}, {"member_norm": True, "embedding": "mean_field"}])
def test_the_given_network_is_not_touched(options: dict, training: bool) -> None:
    net = Net().train(training)
    net.stem.weight.requires_grad_(False)
    twin = copy.deepcopy(net)
    model = sb.rank1(net, members=2, **options)
    model(*inputs())[0].sum().backward() if not options.get("freeze_base") else model(*inputs())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert [type(m) for m in net.modules()] == [type(m) for m in twin.modules()]
    assert [m.training for m in net.modules()] == [m.training for m in twin.modules()]
    for (name, ours), (_, theirs) in zip(
        net.state_dict(keep_vars=True).items(), twin.state_dict().items(), strict=True
    ):
        assert torch.equal(ours, theirs), name
        assert getattr(ours, "grad", None) is None
    assert [p.requires_grad for p in net.parameters()] == [p.requires_grad for p in twin.parameters()]
    assert not {id(p) for p in net.parameters()} & {id(p) for p in model.parameters()}
    assert model.net.training == training


@pytest.mark.parametrize(
    ("net", "x", "batch_dim"),
    [
        (nn.Linear(3, 2), torch.randn(4, 3), 0),
        (nn.Conv1d(3, 2, 2), torch.randn(4, 3, 5), 0),
        (nn.LSTM(3, 2, num_layers=2, bidirectional=True), torch.randn(5, 4, 3), 1),
        (nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), torch.randn(4, 5, 4), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_the_root_itself_is_converted(net: nn.Module, x: torch.Tensor, batch_dim: int) -> None:
    model = sb.rank1(net.eval(), members=2, batch_dim=batch_dim)
    outputs = list(sb.batching.tensors(model(x, samples=0)))
    for k in range(2):
        member = model.member(k)
        assert type(member) is type(net)
        for found, expected in zip(outputs, sb.batching.tensors(member(x)), strict=True):
            torch.testing.assert_close(found[k], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("net", [nn.ReLU(), nn.Sequential(), nn.BatchNorm1d(3), nn.Sequential(nn.PReLU())])
def test_nothing_to_convert_is_an_error(net: nn.Module) -> None:
    with pytest.raises(ValueError, match="to have a layer to convert, but none was"):
        sb.rank1(net)


# ---------------------------------------------------------------------- sharing


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.shared = nn.Linear(4, 4)
        self.aliases = nn.ModuleList([self.shared, self.shared])
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)
        self.right.weight, self.right.bias = self.left.weight, self.left.bias
        self.decoder = nn.Linear(4, 5, bias=False)
        self.decoder.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.aliases:
            x = layer(x).tanh()
        return self.decoder(self.right(self.left(x).tanh()))


def assert_tied(net: nn.Module) -> None:
    assert net.aliases[0] is net.aliases[1] is net.shared
    assert net.left.weight is net.right.weight
    assert net.left.bias is net.right.bias
    assert net.decoder.weight is net.embed.weight
    assert net.left is not net.right


def test_tied_weights_stay_tied_through_conversion_training_and_loading(tmp_path) -> None:
    net = Tied()
    model = sb.rank1(net, members=2)
    assert_tied(model.net)
    assert model.net.left.input_factor is not model.net.right.input_factor
    # shared, left, right and decoder: two factors with a location and a rho each; two biases for each of two members.
    factors = 2 * 2 * (8 + 8 + 8 + 9)
    assert sb.count_parameters(model) == sb.count_parameters(net) + factors + 2 * 4

    tokens = torch.randint(5, (6, 3))
    elbo = sb.ELBO(model, 6)
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    elbo(model(tokens), tokens).backward()
    optimiser.step()
    assert_tied(model.net)
    assert not torch.equal(model.net.embed.weight, net.embed.weight)

    model.save_pretrained(tmp_path)
    assert_tied(sb.load(tmp_path, Tied()).net)
    assert_tied(copy.deepcopy(model).net)
    for k in range(2):
        member = model.member(k)
        torch.testing.assert_close(member(tokens), model(tokens, samples=0)[k], rtol=1e-5, atol=1e-6)
        assert member.aliases[0] is member.aliases[1]


# ---------------------------------------------------------------------- frozen base


def test_a_frozen_base_trains_factors_alone() -> None:
    net = Net().train()
    model = sb.rank1(net, members=2, freeze_base=True).train()
    x, label = inputs()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    elbo = sb.ELBO(model, 10)
    optimiser = torch.optim.SGD(model.param_groups(lr=0.1, weight_decay=0.5), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        elbo(model(x, label), torch.tensor([0, 1, 1, 0])).backward()
        optimiser.step()
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if "_factor." in name}
    assert {name for name, p in model.named_parameters() if p.requires_grad} == moved
    assert not any(module.training for module in model.modules() if isinstance(module, nn.BatchNorm2d))
    assert model.summary().trainable == sum(before[name].numel() for name in moved)


def test_a_free_bases_statistics_move() -> None:
    model = sb.rank1(Net().train(), members=2)
    model(*inputs())
    assert model.net.layer1[0].bn.num_batches_tracked == 1


# ---------------------------------------------------------------------- a layer class of one's own


class TransposedLinear(nn.Module):
    """A linear layer whose weight is (in, out), as GPT-2 has it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Rank1TransposedLinear(Rank1, TransposedLinear):
    def sizes(self):
        return self.weight.shape[0], self.weight.shape[1]

    def op(self, x, *args):
        return x @ self.weight

    def scaled_weight(self, scale):
        return self.weight * scale.T


@pytest.fixture
def registered():
    sb.register_converter(
        TransposedLinear, lambda layer, settings: Rank1TransposedLinear.adopt(layer, settings.options, settings.memo)
    )
    yield
    del conversion._CONVERTERS["rank1"][TransposedLinear]


def custom() -> nn.Module:
    return nn.Sequential(TransposedLinear(3, 4), nn.Tanh(), TransposedLinear(4, 2))


@pytest.mark.usefixtures("registered")
def test_a_registered_layer_works_from_end_to_end(tmp_path) -> None:
    model = sb.rank1(custom().double(), members=3, dropout_rate=0.2)
    assert model.summary().converted == ["0", "2"]
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 1])
    draw = model.draw(2, torch.Generator().manual_seed(1))
    outputs = model(x, draw=draw)
    for d in range(6):
        hidden = x
        for name in ("0", "2"):
            layer = model.net.get_submodule(name)
            s, r = draw[f"{name}.input_factor"][d], draw[f"{name}.output_factor"][d]
            hidden = hidden @ (layer.weight * s.unsqueeze(1) * r) + layer.bias[d // 2]
            hidden = hidden.tanh() if name == "0" else hidden
        torch.testing.assert_close(outputs[d], hidden, rtol=1e-10, atol=1e-10)
        member = model.member(d // 2, sample=d % 2, draw=draw)
        assert type(member[0]) is TransposedLinear
        torch.testing.assert_close(member(x), hidden, rtol=1e-10, atol=1e-10)
    sb.ELBO(model, 10)(model(x), y).backward()
    assert all(p.grad is not None for p in model.parameters())
    model.save_pretrained(tmp_path)
    loaded = sb.load(tmp_path, custom().double())
    assert torch.equal(loaded.predict(x, seed=2).draws, model.predict(x, seed=2).draws)


def test_an_unregistered_layer_names_its_class() -> None:
    with pytest.raises(ValueError, match=r"no converter is registered for \S*test_conversion.TransposedLinear"):
        sb.rank1(custom())


# ---------------------------------------------------------------------- summary and warning


def test_summary_counts_and_table() -> None:
    net = nn.Sequential(OrderedDict(embed=nn.Embedding(10, 4), conv=nn.Conv1d(3, 5, 2), fc=nn.Linear(6, 2, bias=False)))
    summary = sb.rank1(net, members=3).summary()
    before = {"embed": 40, "conv": 3 * 5 * 2 + 5, "fc": 12}
    # Locations and rhos of three members' factors on inputs and outputs; three biases for one.
    after = {"embed": 40, "conv": 30 + 3 * 5 + 3 * 2 * (3 + 5), "fc": 12 + 3 * 2 * (6 + 2)}
    assert {part.name: part.before for part in summary.parts} == before
    assert {part.name: part.after for part in summary.parts} == after
    assert (summary.before, summary.after) == (sum(before.values()), sum(after.values()))
    assert summary.trainable == summary.after
    lines = str(summary).splitlines()
    assert lines[0].split() == ["module", "class", "parameters", "became"]
    assert lines[1].startswith("embed")
    assert "left: embeddings are point estimates" in lines[1]
    assert lines[2].split() == ["conv", "Conv1d", "35", "->", "93", "Rank1Conv1d"]
    assert lines[3].split() == ["fc", "Linear", "12", "->", "60", "Rank1Linear"]
    assert lines[-1].startswith("87 parameters became 193 (+121.84%), 193 of them trainable")


def test_summary_names_the_root() -> None:
    assert "(root)" in str(sb.rank1(nn.Linear(3, 2)).summary())


def test_layers_that_are_bypassed_are_warned_of_once() -> None:
    class Bypasses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.read = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            return F.linear(self.used(x), self.read.weight)

    model, x = sb.rank1(Bypasses(), members=2), torch.randn(4, 3)
    with pytest.warns(UserWarning, match=r"did not call them: read\..*exclude them"):
        model(x)
    model(x)  # a second warning would be an error here
    sb.rank1(Bypasses(), members=2, exclude="read")(x)


def chain(layer: nn.Module) -> nn.Module:
    return nn.Sequential(layer, nn.Linear(5, 2))


def test_lazy_layers_are_refused_until_they_have_weights() -> None:
    net, x = chain(nn.LazyLinear(5)), torch.randn(4, 3)
    for method, options in ((sb.rank1, {}), (sb.rank1, {"include": "0"}), (sb.mean_field, {}), (sb.k_tied, {"k": 3})):
        with pytest.raises(
            ValueError, match=r"Layer 0 \(LazyLinear\) is lazy.*run one batch through the network first"
        ):
            method(net, **options)
    assert sb.rank1(net, exclude="0")(x).shape == (4, 4, 2)
    net(x)
    assert sb.rank1(net).summary().converted == ["0", "1"]


# ---------------------------------------------------------------------- weights that are computed

COMPUTED = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "old weight_norm": torch.nn.utils.weight_norm,
    "old spectral_norm": torch.nn.utils.spectral_norm,
}
CONVERSIONS = {
    "rank1": lambda net: sb.rank1(net, members=2, dropout_rate=0.1),
    "batch_ensemble": lambda net: sb.batch_ensemble(net, members=2, rank=2),
    "mc_dropout": lambda net: sb.mc_dropout(net, 0.3),
    "mean_field": lambda net: sb.mean_field(net, init_std=0.1),
    "k_tied": lambda net: sb.k_tied(net, estimator="flipout", init_std=0.1),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize("computed", COMPUTED)
@pytest.mark.parametrize("method", CONVERSIONS)
def test_layers_with_a_computed_weight_convert(method: str, computed: str, tmp_path) -> None:
    """Factors scale the computed weight; a Gaussian posterior has it as its mean."""
    gaussian = method in ("mean_field", "k_tied")
    if gaussian and computed.startswith("old"):
        model = CONVERSIONS[method](nn.Sequential(COMPUTED[computed](nn.Linear(3, 3)), nn.Linear(3, 4)))
        assert "computed by a hook before each pass" in model.summary().left["0"]
        return

    def build() -> nn.Module:
        make = COMPUTED[computed]
        return nn.Sequential(make(nn.Linear(5, 6)), nn.Tanh(), make(nn.Conv1d(3, 3, 2))).eval()

    net, x = build(), torch.randn(4, 3, 5)
    model = CONVERSIONS[method](net)
    assert model.summary().converted == ["0", "2"]
    if gaussian:
        torch.testing.assert_close(model(x, samples=0)[0], net(x))
    draw = model.draw(2)
    outputs = model(x, draw=draw)
    for d in range(len(outputs)):
        member = model.member(d // 2, sample=d % 2, draw=draw)
        assert [type(layer) for layer in member] == [nn.Linear, nn.Tanh, nn.Conv1d]
        assert {name for name, _ in member.named_parameters()} == {
            f"{i}.{part}" for i in (0, 2) for part in ("weight", "bias")
        }
        torch.testing.assert_close(outputs[d], member(x), rtol=1e-5, atol=1e-6)
    model.check(x)
    model.train()
    optimiser = torch.optim.SGD(model.param_groups(lr=1e-3, weight_decay=0.1))
    (model(x).square().mean() + model.kl() / 1000).backward()
    assert all(p.grad is not None for p in model.parameters())
    optimiser.step()
    model.eval()
    member = model.member(0)  # of the weights of now, not those of the last pass
    torch.testing.assert_close(member(x), model(x, samples=0)[0], rtol=1e-5, atol=1e-6)
    model.save_pretrained(tmp_path)
    loaded = sb.load(tmp_path, build()).eval()
    torch.testing.assert_close(loaded(x, samples=0), model(x, samples=0))


def test_a_spectral_norm_keeps_its_estimate_in_a_member() -> None:
    model = sb.rank1(nn.Sequential(parametrizations.spectral_norm(nn.Linear(3, 4))), init="ones").train()
    u = model.net[0].parametrizations.weight[0]._u.clone()
    model.member(0)
    assert torch.equal(model.net[0].parametrizations.weight[0]._u, u)


def test_new_means_of_a_computed_weight_are_refused() -> None:
    with pytest.raises(ValueError, match="`init` to be 'network'.*remove_parametrizations"):
        sb.mean_field(parametrizations.weight_norm(nn.Linear(3, 4)), init="he")


# ---------------------------------------------------------------------- networks that convert by halves


class Foreign(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))

    def forward(self, x):
        return x @ self.weight


HALF = r"8 of 9 layers with weight matrices, and 512 of their 536 weights.*0, 1, 2 and 5 more: no converter.*Foreign"


@pytest.mark.parametrize("method", CONVERSIONS)
def test_a_network_that_mostly_stays_as_it_is_is_warned_of(method: str) -> None:
    net = nn.Sequential(*[Foreign(8) for _ in range(8)], nn.Linear(8, 3))
    with pytest.warns(UserWarning, match=HALF):
        CONVERSIONS[method](net)
    CONVERSIONS[method](nn.Sequential(Foreign(8), nn.Linear(8, 8)))  # a warning would be an error here


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize("method", ["mean_field", "k_tied"])
def test_older_hooks_that_leave_most_of_a_network_are_warned_of(method: str) -> None:
    """Before, there was no word of them: a method's own reasons did not count."""
    net = nn.Sequential(*[torch.nn.utils.weight_norm(nn.Linear(8, 8)) for _ in range(8)], nn.Linear(8, 3))
    with pytest.warns(UserWarning, match="8 of 9 layers with weight matrices.*computed by a hook.*parametrizations"):
        CONVERSIONS[method](net)


@pytest.mark.parametrize(
    "options",
    [{"exclude": Foreign}, {"include": "8"}, {"factors": "input", "exclude": ["8", Foreign], "include": nn.Linear}],
)
def test_no_warning_of_what_the_user_chose(options: dict) -> None:
    net = nn.Sequential(*[Foreign(8) for _ in range(8)], nn.Linear(8, 3), nn.Linear(3, 2))
    sb.rank1(net, **options)


def test_a_quantized_network_is_refused_in_few_words() -> None:
    with pytest.warns():  # torch's own, of the interface and its types
        net = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), {nn.Linear})
    with pytest.raises(ValueError, match=r"it is quantized.*Convert it before quantizing\.$"):
        sb.rank1(net)


def test_a_generator_of_names() -> None:
    assert sb.rank1(chain(nn.Linear(3, 5)), include=(n for n in "1")).summary().converted == ["1"]
    with pytest.raises(TypeError, match="`include`.*got 5"):
        sb.rank1(chain(nn.Linear(3, 5)), include=5)
