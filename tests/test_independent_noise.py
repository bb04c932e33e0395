"""noise="independent": each row draws for itself, however many there are."""

import json

import pytest
import torch
from torch import nn

import slimbayes as sb
from compiled_kernels import with_fast

#: So many that noise per example is shared by a few rows, where ``slimbayes._fast`` is there.
ROWS, CHANNELS = 128, 256
#: Different magnitudes of noise per example.
OF_EXAMPLES = ROWS // 32 if with_fast else pytest.approx(ROWS, rel=0.1)


def identity():
    """Return a network that shows its input factor, given ones."""
    net = nn.Linear(CHANNELS, CHANNELS, bias=False)
    nn.init.eye_(net.weight)
    return net


def model_of(**options):
    return sb.rank1(identity(), **{"members": 2, "factors": "input", "init": "ones", "dropout_rate": 0.3, **options})


X = torch.ones(ROWS, CHANNELS)


def magnitudes(outputs):
    """Return how many different magnitudes the rows' noise has in one channel of one member."""
    return len({round(value, 5) for value in (outputs[0, :, 0] - 1).abs().tolist()})


def test_as_an_argument_of_the_method():
    model = model_of(noise="independent")
    assert model.options["noise"] == "independent"
    with torch.no_grad():
        assert magnitudes(model(X)) > 0.9 * ROWS
        assert magnitudes(model_of()(X)) == OF_EXAMPLES


def test_as_an_argument_of_a_pass():
    model = model_of()
    with torch.no_grad():
        assert magnitudes(model(X, noise="independent")) > 0.9 * ROWS
        assert magnitudes(model(X)) == OF_EXAMPLES


def test_the_same_numbers_whatever_asks_for_them():
    model = model_of()
    always = model_of(noise="independent")
    always.load_state_dict(model.state_dict())
    found = [
        some(X, noise=noise, samples=2, generator=torch.Generator().manual_seed(1))
        for some, noise in ((model, "independent"), (always, None), (always, "independent"))
    ]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_little_noise_is_independent_anyway():
    model, x = model_of(), X[:5]
    one, other = (
        model(x, noise=noise, generator=torch.Generator().manual_seed(1)) for noise in ("example", "independent")
    )
    assert torch.equal(one, other)


def test_predictions():
    model = model_of()
    draws = model.predict(X, samples=2, noise="independent", seed=1).draws
    assert draws.shape == (4, ROWS, CHANNELS)
    assert magnitudes(draws) > 0.9 * ROWS
    assert torch.equal(draws, model.predict(X, samples=2, noise="independent", seed=1).draws)
    assert magnitudes(model_of(noise="independent").predict(X).draws) > 0.9 * ROWS
    assert magnitudes(model.predict(X).draws) == OF_EXAMPLES


def test_on_disk(tmp_path):
    model = model_of(noise="independent")
    model.save_pretrained(tmp_path)
    assert "independent" in json.dumps(json.loads((tmp_path / "config.json").read_text()))
    loaded = sb.load(tmp_path, identity())
    assert loaded.options["noise"] == "independent"
    torch.testing.assert_close(loaded.predict(X, seed=2).draws, model.predict(X, seed=2).draws, rtol=0, atol=0)


OTHERS = {
    "mc_dropout": sb.mc_dropout,
    "mean_field": lambda net, **options: sb.mean_field(net, estimator="local", **options),
    "batch_ensemble": sb.batch_ensemble,
}


@pytest.mark.parametrize("method", OTHERS)
def test_other_methods_take_it(method):
    """Where nothing is shared, it is noise per example."""
    torch.manual_seed(0)
    model = OTHERS[method](nn.Linear(3, 4), noise="independent")
    x = torch.randn(6, 3)
    own, example = (model(x, noise=noise, generator=torch.Generator().manual_seed(1)) for noise in (None, "example"))
    assert torch.equal(own, example)


def test_noise_of_local_estimates_is_independent_however_much_it_is():
    torch.manual_seed(0)
    model = sb.mean_field(identity(), estimator="local", bayesian_bias=False)
    x = X.clone()
    with torch.no_grad():
        for noise in ("independent", "example"):
            y = model(x, noise=noise)
            off = (y[0, :, 0] - model(x, samples=0)[0, :, 0]).abs()
            assert len({round(value, 5) for value in off.tolist()}) == pytest.approx(ROWS, rel=0.1)
