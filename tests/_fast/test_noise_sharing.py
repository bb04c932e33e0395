"""Which rows share a draw's magnitudes, and which draw for themselves."""

import pytest
import torch
from fast_oracle import MEMBERS, flipping
from torch import nn

import slimbayes as sb
from slimbayes._fast.row_noise import SignedNoise, rows_of_a_draw, rows_that_share
from slimbayes.families import StudentT
from slimbayes.layers.rank1 import Factor, FactorOptions
from slimbayes.sampling import Sampling


def test_the_rows_of_a_draw_divide_those_of_a_member_and_sample():
    for rows in range(1, 301):
        share = rows_of_a_draw(rows)
        assert rows % share == 0
        assert share > 1 or rows == 1
        few = [n for n in range(1, 33) if rows % n == 0 and n >= min(32, rows) / 2]
        assert share == max(few) if few else share > 32


@pytest.mark.parametrize("batch", [2, 3, 5, 8, 12, 17, 20, 32])
def test_samples_of_an_example_never_share_a_draw(batch):
    samples, channels = 3, 2
    factor = Factor(channels, FactorOptions(members=MEMBERS, dropout_rate=0.3))
    factor.sampling = Sampling(samples=samples)
    with flipping(), torch.no_grad():
        (values,) = factor.values(MEMBERS * samples * batch, "layer")
        of_factor = values.view(MEMBERS, samples, batch, channels) - factor.loc.view(MEMBERS, 1, 1, channels)
    magnitudes = [set(rows[:, 0].abs().mul(1e5).round().tolist()) for rows in of_factor.flatten(0, 1)]
    assert all(len(some) == batch // rows_of_a_draw(batch) for some in magnitudes)
    assert len(set().union(*magnitudes)) == sum(map(len, magnitudes))


def test_the_same_seed_gives_the_same_draws():
    model = sb.rank1(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), members=2)
    x = torch.randn(6, 3)
    with flipping():
        first, again, other = (model(x, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        one, two = (model.predict(x, samples=3, seed=1, batch_size=4).draws for _ in range(2))
        assert torch.equal(one, two)
        torch.manual_seed(1)
        one = model(x)
        torch.manual_seed(1)
        assert torch.equal(model(x), one)


def test_a_layer_called_twice_keeps_its_draw():
    layer = nn.Linear(3, 3, bias=False)
    nn.init.eye_(layer.weight)
    once, twice = (sb.rank1(nn.Sequential(*[layer] * n), members=2, factors="input", init="ones") for n in (1, 2))
    twice.load_state_dict(once.state_dict(), strict=False)  # it has both names of the layer
    with flipping(), torch.no_grad():
        values, squares = (
            model(torch.ones(4, 3), generator=torch.Generator().manual_seed(1)) for model in (once, twice)
        )
    torch.testing.assert_close(squares, values.square())


OTHERWISE = {
    "shared": ({}, {"noise": "shared"}, torch.float32),
    "independent": ({}, {"noise": "independent"}, torch.float32),
    "clip": ({"clip": 10.0}, {}, torch.float32),
    "rank": ({"rank": 2}, {}, torch.float32),
    "skewed": ({"family": "log_normal"}, {}, torch.float32),
    "point": ({"family": "delta"}, {}, torch.float32),
    "half": ({}, {}, torch.bfloat16),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_who_draws_for_each_row(case):
    options, state, dtype = OTHERWISE[case]
    factor = Factor(4, FactorOptions(members=2, **options), dtype=dtype)
    factor.sampling = Sampling(**state)
    with flipping():
        assert isinstance(factor.drawn(8, "layer"), torch.Tensor)
        student = Factor(4, FactorOptions(members=2, family=StudentT(df=5)))
        assert isinstance(student.drawn(8, "layer"), SignedNoise)
        assert isinstance(Factor(4, FactorOptions(members=8)).drawn(8, "layer"), torch.Tensor)  # a row each


def test_only_much_noise_is_shared():
    factor = Factor(512, FactorOptions(members=4))
    assert isinstance(factor.drawn(32, "layer"), torch.Tensor)
    assert isinstance(factor.drawn(64, "layer"), SignedNoise)
    assert rows_that_share(64, 512, 4, factor.loc, factor.sampling) == 16
