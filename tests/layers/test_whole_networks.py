"""Whole networks of odd but legitimate kinds, against the same networks run one by one."""

import copy

import pytest
import torch
from torch import nn

import slimbayes as sb

BATCH, FEATURES, CLASSES = 6, 4, 3
X = torch.linspace(-2, 2, BATCH * FEATURES).view(BATCH, FEATURES).sin()


class Tied(nn.Module):
    """Looks the same whether its weights are tied or not."""

    def __init__(self, tied):
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        if tied:
            self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x).relu())


class Offset(nn.Module):
    def __init__(self, offset, persistent=True):
        super().__init__()
        self.register_buffer("offset", offset, persistent=persistent)
        self.register_buffer("nothing", None)

    def forward(self, x):
        return x + self.offset.mean(0)


class Picked(nn.Module):
    """Reads its features in an order of its own, which is a buffer of whole numbers."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("order", torch.randperm(FEATURES))

    def forward(self, x):
        return self.body(x[:, self.order])


class ExtraState(nn.Linear):
    def get_extra_state(self):
        return {"anything": 1}

    def set_extra_state(self, state):
        pass


def used_twice(module):
    return nn.Sequential(nn.Linear(FEATURES, FEATURES), module, nn.Linear(FEATURES, FEATURES), module)


def one_offset_twice():
    offset = torch.randn(1, FEATURES)
    return nn.Sequential(nn.Linear(FEATURES, FEATURES), Offset(offset), nn.Tanh(), Offset(offset))


def with_offset(rows):
    return nn.Sequential(nn.Linear(FEATURES, FEATURES), Offset(torch.randn(rows, FEATURES), persistent=False))


PAIRS = {
    "tied and not": lambda: [Tied(True), Tied(False)],
    "not and tied": lambda: [Tied(False), Tied(True)],
    "a layer used twice and two layers": lambda: [
        used_twice(nn.Linear(FEATURES, FEATURES)),
        nn.Sequential(*(nn.Linear(FEATURES, FEATURES) for _ in range(4))),
    ],
    "an activation used twice and two": lambda: [
        used_twice(nn.ReLU()),
        nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, FEATURES), nn.ReLU()),
    ],
    "a buffer in two modules": lambda: [one_offset_twice(), one_offset_twice()],
    "unlike buffers that are not stored": lambda: [with_offset(1), with_offset(2)],
    "whole numbers": lambda: [Picked(), Picked()],
    "extra state": lambda: [ExtraState(FEATURES, CLASSES), ExtraState(FEATURES, CLASSES)],
}


@pytest.mark.parametrize("vectorised", [True, False])
@pytest.mark.parametrize("name", PAIRS)
def test_members_compute_what_they_compute_alone(name, vectorised):
    networks = PAIRS[name]()
    found = sb.deep_ensemble(networks, vectorised=vectorised).eval()(X)
    torch.testing.assert_close(found, torch.stack([net(X) for net in networks]))


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_draw_of_a_law_runs_with_its_members_whole_numbers(vectorised):
    networks = [Picked() for _ in range(3)]
    model = sb.sgmcmc(networks, vectorised=vectorised)
    model.collect()
    wanted = torch.stack([net(X) for net in networks])
    torch.testing.assert_close(model.eval()(X), wanted)
    torch.testing.assert_close(model(X, samples=2), wanted.repeat_interleave(2, 0))
    assert not model.net.refuses_vmap


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_law_keeps_the_types_of_its_network(vectorised):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.body = nn.LayerNorm(FEATURES), nn.Linear(FEATURES, CLASSES, dtype=torch.float64)

        def forward(self, x):
            return self.body(self.norm(x).double())

    networks = [Mixed(), Mixed()]
    model = sb.sgmcmc(networks, vectorised=vectorised)
    model.collect()
    wanted = torch.stack([net(X) for net in networks])
    torch.testing.assert_close(model.eval()(X), wanted, rtol=0, atol=1e-6)
    torch.testing.assert_close(model.member(1)(X), wanted[1], rtol=0, atol=0)


def test_a_forward_pass_in_training_leaves_draws_alone():
    model = sb.sgmcmc(lambda: nn.Sequential(nn.Linear(FEATURES, CLASSES), nn.BatchNorm1d(CLASSES)))
    model.collect()
    draw = model.draw(2)
    before = {name: values.clone() for name, values in draw.items()}
    model.train()(X, draw=draw)
    torch.testing.assert_close(draw, before, rtol=0, atol=0)


class Named(nn.Module):
    def __init__(self, order):
        super().__init__()
        self.order, self.heads = order, nn.ModuleDict({key: nn.Linear(FEATURES, CLASSES) for key in sorted(order)})

    def forward(self, x):
        return [{key: self.heads[key](x) for key in self.order}]


def test_outputs_of_one_shape_under_other_keys_are_not_mixed_up():
    alike = [Named("ab"), Named("ab")]
    found = sb.deep_ensemble(alike).eval()(X)
    torch.testing.assert_close(found[0]["b"], torch.stack([net(X)[0]["b"] for net in alike]))
    with pytest.raises(ValueError, match=r"member 0 returns 'a' \(6, 3\) and 'b' \(6, 3\) and member 1 'b' \(6, 3\)"):
        sb.deep_ensemble([Named("ab"), Named("ba")]).eval()(X)


class Counting(nn.Module):
    """Returns a whole number and nothing besides its logits."""

    def __init__(self, count):
        super().__init__()
        self.count, self.body = count, nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        return {"logits": self.body(x), "count": torch.tensor(self.count), "nothing": None}


def test_whole_numbers_without_an_axis_are_averaged():
    model = sb.deep_ensemble([Counting(3), Counting(4)]).eval()
    assert model(X)["count"] == 3.5
    assert model(X)["nothing"] is None
    assert model.predict(X, batch_size=4).draws["count"] == 3.5
    few = 4 * BATCH * 4  # bytes for one sample at a time
    assert sb.mc_dropout(Counting(3)).predict(X, samples=3, max_memory=few).draws["count"] == 3


# ---------------------------------------------------------------------- what is given


def test_a_module_list_is_a_list():
    networks = nn.ModuleList([nn.Linear(FEATURES, CLASSES), nn.Linear(FEATURES, CLASSES)])
    torch.testing.assert_close(sb.deep_ensemble(networks)(X), torch.stack([net(X) for net in networks]))


def test_a_function_builds_four_members():
    assert sb.deep_ensemble(lambda: nn.Linear(FEATURES, CLASSES)).members == 4


FIXED = nn.Linear(FEATURES, CLASSES)


@pytest.mark.parametrize(
    ("networks", "error", "told"),
    [
        (5, TypeError, "`networks` to be networks .* but got int"),
        (lambda: FIXED, ValueError, "build a new network at each call"),
        (lambda: nn.LazyLinear(CLASSES), ValueError, "lazy modules.* Run each network"),
        (lambda: sb.rank1(nn.Linear(FEATURES, CLASSES)), ValueError, "plain network, but it has been converted"),
    ],
)
def test_what_cannot_be_members_is_named(networks, error, told):
    with pytest.raises(error, match=told):
        sb.deep_ensemble(networks, 2 if callable(networks) else None)


def test_equal_members_are_warned_of(tmp_path):
    def seeded():
        torch.manual_seed(0)
        return nn.Linear(FEATURES, CLASSES)

    for networks in ([FIXED] * 2, [nn.Linear(FEATURES, CLASSES), FIXED, copy.deepcopy(FIXED)][1:]):
        with pytest.warns(UserWarning, match="stay equal"):
            sb.deep_ensemble(networks)
    with pytest.warns(UserWarning, match="stay equal"):
        sb.deep_ensemble(seeded, 2)
    sb.deep_ensemble(seeded, 2, train_on="split").save_pretrained(tmp_path)
    assert sb.load(tmp_path, FIXED).members == 2


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ([FIXED] * 3, ValueError, "`net` to be one network.* or the 2 of the saved model, but got 3"),
        ([], TypeError, "`net`"),
    ],
)
def test_the_number_of_loaded_networks_is_checked(tmp_path, wrong, error, told):
    model = sb.deep_ensemble(lambda: nn.Linear(FEATURES, CLASSES), 2)
    model.save_pretrained(tmp_path)
    with pytest.raises(error, match=told):
        sb.load(tmp_path, wrong)
    loaded = sb.load(tmp_path, nn.ModuleList([FIXED, FIXED]))
    torch.testing.assert_close(loaded(X), model(X), rtol=0, atol=0)


def test_a_damaged_file_is_named(tmp_path):
    sb.deep_ensemble(lambda: nn.Linear(FEATURES, CLASSES), 2).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"garbage")
    with pytest.raises(ValueError, match=r"model.safetensors' is damaged"):
        sb.load(tmp_path, FIXED)
