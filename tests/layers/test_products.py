"""Products and convolutions of our own: torch's say the same, and no memory is touched but theirs."""

from contextlib import contextmanager
from itertools import product as every

import pytest
import torch
from fast_oracle import TOLERANCES, assert_near
from torch import nn

import slimbayes as sb
from compiled_kernels import product_versions, with_products, without_products
from slimbayes.layers import convolutions, products
from slimbayes.layers.convolutions import whole_conv
from slimbayes.layers.flips import Flipped, parts_of
from slimbayes.layers.geometry import Geometry
from slimbayes.layers.products import groups_back, product, turned_product
from slimbayes.layers.scaled_conv import plain_conv
from slimbayes.layers.scratch import scratch as plain_scratch

DTYPES = (torch.float32, torch.float64)
#: Rows, depth and columns: tiles and panels that are full, almost empty, and more than are taken at once.
SIZES = ((24, 32, 64), (25, 33, 127), (31, 1027, 128), (100, 48, 256), (1500, 40, 70))


@pytest.fixture(params=product_versions())
def _own(request):
    with with_products(request.param):
        yield


@contextmanager
def guarded_memory():
    """Let kernels have no more memory than they ask for, with a border behind it that they must leave alone."""
    given = []

    def scratch(use, like, size):
        memory = torch.full((size + 64,), 7.0, dtype=like.dtype)
        given.append(memory)
        return memory[:size]

    with pytest.MonkeyPatch.context() as patch:
        for module in (products, convolutions):
            patch.setattr(module, "scratch", scratch)
        yield given
    assert given, "no kernel has run"
    assert all((memory[-64:] == 7).all() for memory in given)


@contextmanager
def every_size():
    """Let kernels compute what torch would compute sooner, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "MOST_SPARE", 1.0)
        yield


# ------------------------------------------------------------------ products


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products(sizes, dtype):
    rows, depth, columns = sizes
    left, right = torch.randn(rows, depth, dtype=dtype), torch.randn(depth, columns, dtype=dtype)
    expected = (left.double() @ right.double()).to(dtype)
    bias = torch.randn(columns, dtype=dtype)
    with guarded_memory() as given, every_size():
        assert_near(product(left, right), expected, TOLERANCES[dtype][0])
        assert_near(product(left, right.T.contiguous(), turned=True), expected, TOLERANCES[dtype][0])
        assert_near(turned_product(left.T.contiguous(), right), expected, TOLERANCES[dtype][0])
        assert_near(product(left, right, bias=bias), expected + bias, TOLERANCES[dtype][0])
        out = torch.full((rows, columns), torch.nan, dtype=dtype)
        assert product(left, right, out=out) is out
        assert_near(out, expected, TOLERANCES[dtype][0])
    assert len(given) == 5


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("with_r", [True, False])
@pytest.mark.parametrize("sizes", [(4, 64, 64, 64), (1, 32, 24, 65), (3, 40, 50, 190)], ids=str)
def test_gradients_of_groups(sizes, with_r, dtype):
    groups, rows, outputs, inputs = sizes
    x, grad = torch.randn(groups, rows, inputs, dtype=dtype), torch.randn(groups, rows, outputs, dtype=dtype)
    weight, s, r = (
        torch.randn(shape, dtype=dtype) for shape in ((outputs, inputs), (groups, inputs), (groups, outputs))
    )
    exact = [one.double().requires_grad_() for one in (weight, s, r)]
    y = (x.double() * exact[1].unsqueeze(1)) @ exact[0].T * (exact[2].unsqueeze(1) if with_r else 1)
    expected = torch.autograd.grad(y, exact if with_r else exact[:2], grad.double())
    with guarded_memory(), every_size():
        found = groups_back(grad.flatten(0, 1), x.flatten(0, 1), weight, s, r if with_r else None)
    assert found is not None
    assert (found[2] is None) != with_r
    for own, one in zip(found, expected, strict=False):
        assert_near(own, one.to(dtype), TOLERANCES[dtype][1])


def is_torchs(*args, **kwargs):
    """Tell whether torch did a product."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "scratch", lambda *_: pytest.fail("a kernel has run"))
        return product(*args, **kwargs) is not None


@pytest.mark.usefixtures("_own")
def test_what_is_left_to_torch():
    x, weight = torch.randn(64, 64), torch.randn(64, 64)
    assert is_torchs(x[:8], weight)  # few rows
    assert is_torchs(x[:, :8].contiguous(), weight[:8])  # short sums
    assert is_torchs(x, weight[:, :40].contiguous())  # a panel half of which is for nothing
    assert is_torchs(x.T, weight)
    assert is_torchs(x.bfloat16(), weight.bfloat16())
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert is_torchs(x, weight)
    finally:
        torch.set_num_threads(threads)
    many = torch.randn(4096, 64)
    assert groups_back(many, many, weight, torch.ones(2, 64), None) is None


# ------------------------------------------------------------------ convolutions

#: Inputs, outputs, height, width, kernel, stride and padding.
GEOMETRIES = (
    (3, 16, 16, 17, (3, 3), (1, 1), (1, 1)),
    (5, 64, 9, 7, (3, 3), (2, 1), (1, 1)),
    (4, 48, 20, 24, (5, 3), (1, 1), (2, 0)),
    (7, 32, 16, 19, (1, 1), (1, 2), (0, 0)),
    (8, 128, 6, 5, (2, 2), (1, 1), (0, 1)),
)
ROWS = 12


def side_of_kind(kind, channels, dtype):
    """Return the values of twelve rows: for each member, for each row, with signs, or none."""
    if kind == "none":
        return None
    if kind == "flipped":
        signs = torch.randint(2, (3, channels + 5), dtype=torch.int8) * 2 - 1
        deviation = torch.randn(4, channels + 5, dtype=dtype)
        return Flipped(torch.randn(2, channels, dtype=dtype), deviation[:, 5:], signs[:, 5:])
    return torch.randn(2 if kind == "members" else ROWS, channels, dtype=dtype)


def last(x):
    return x.contiguous(memory_format=torch.channels_last)


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_convolutions(geometry, dtype):
    inputs, outputs, height, width, kernel, stride, padding = geometry
    x, weight = (
        last(torch.randn(shape, dtype=dtype)) for shape in ((ROWS, inputs, height, width), (outputs, inputs, *kernel))
    )
    how = Geometry(stride, padding, (1, 1), 1)
    kinds = ("members", "rows", "flipped", "none")
    for before, behind, members in every(kinds, kinds, (0, 1, 2)):
        s, r = side_of_kind(before, inputs, dtype), side_of_kind(behind, outputs, dtype)
        bias = torch.randn(members, outputs, dtype=dtype) if members else None
        with guarded_memory():
            found = whole_conv(x, weight, bias, s, r, how)
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert not found._is_view()
        expected = plain_conv(x, weight, bias, how, *parts_of(s), *parts_of(r))
        assert_near(found, expected, TOLERANCES[dtype][0])


@pytest.mark.usefixtures("_own")
def test_convolutions_that_are_left_to_torch():
    x, weight = last(torch.randn(8, 16, 16, 16)), last(torch.randn(16, 16, 3, 3))
    one = Geometry((1, 1), (1, 1), (1, 1), 1)
    r = torch.ones(2, 16)
    assert whole_conv(x, weight, None, None, r, one) is not None
    assert whole_conv(x.contiguous(), weight, None, None, r, one) is None
    assert whole_conv(x, weight.contiguous(), None, None, r, one) is None
    assert whole_conv(x, weight[:10], None, None, r[:, :10], one) is None  # no whole vector
    assert whole_conv(last(x[..., :9]), weight, None, None, r, one) is None  # lines shorter than a tile
    assert whole_conv(x, weight, None, None, r, one._replace(dilation=(2, 2))) is None
    assert whole_conv(x, last(weight[:, :8]), None, None, r, one._replace(groups=2)) is None
    assert whole_conv(x[:, :, :2, :2], weight, None, None, r, one._replace(padding=(0, 0))) is None  # an error's
    wide = last(torch.randn(8, 128, 16, 16)), last(torch.randn(128, 128, 3, 3))
    assert whole_conv(*wide, None, None, torch.ones(2, 128), one) is None  # more arithmetic than memory


# ------------------------------------------------------------------ whole networks


def dense():
    return nn.Sequential(nn.Linear(80, 128), nn.ReLU(), nn.Linear(128, 192), nn.ReLU(), nn.Linear(192, 5))


def convolved():
    first = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    second = [nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(32, 5)).to(memory_format=torch.channels_last)


NETWORKS = {"dense": (dense, (80,)), "convolved": (convolved, (3, 16, 16))}
#: Weight posteriors convolve as torch does.
NO_KERNELS = {("convolved", "mean_field"), ("convolved", "k_tied")}
METHODS = {
    "rank1": lambda net: sb.rank1(net, members=4, dropout_rate=0.05),
    "shared": lambda net: sb.rank1(net, members=4, noise="shared"),
    "batch_ensemble": lambda net: sb.batch_ensemble(net, members=4),
    "mean_field": lambda net: sb.mean_field(net, prior_std=0.3, estimator="local"),
    "k_tied": lambda net: sb.k_tied(net, k=2, prior_std=0.3, estimator="local"),
}


@contextmanager
def counted():
    """Give a list with an entry for each product and convolution of our own."""
    ran = []

    def scratch(*args):
        ran.append(args)
        return plain_scratch(*args)

    with pytest.MonkeyPatch.context() as patch:
        for module in (products, convolutions):
            patch.setattr(module, "scratch", scratch)
        yield ran


def a_step(network, method):
    """Return the loss, all gradients and a prediction, under a seed."""
    torch.manual_seed(3)
    build, shape = NETWORKS[network]
    model = METHODS[method](build())
    x, y = torch.randn(52, *shape), torch.randint(5, (52,))
    x = last(x) if x.dim() == 4 else x
    loss = sb.ELBO(model, num_data=1000)(model(x), y)
    loss.backward()
    gradients = {name: one.grad for name, one in model.named_parameters()}
    return loss.detach(), gradients, model.predict(x, seed=1).draws


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(("network", "method"), sorted(set(every(NETWORKS, METHODS)) - NO_KERNELS))
def test_a_step_and_a_prediction_are_those_of_torchs_products(network, method):
    with counted() as ran:
        loss, gradients, draws = a_step(network, method)
    assert len(ran) >= 4  # two layers, in a step and a prediction
    with without_products(), counted() as ran:
        plain_loss, plain_gradients, plain_draws = a_step(network, method)
    assert not ran
    torch.testing.assert_close(loss, plain_loss, rtol=1e-5, atol=0)
    torch.testing.assert_close(draws, plain_draws, rtol=1e-4, atol=1e-5)
    for name, expected in plain_gradients.items():
        assert (gradients[name] - expected).abs().max() <= 1e-4 * expected.abs().max() + 1e-7, name


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize("method", ["mean_field", "k_tied"])
def test_a_batch_of_gradients_is_each_of_them(method):
    """Autograd shows such a batch one gradient at a time, which has no memory that a kernel could read."""
    torch.manual_seed(3)
    model = METHODS[method](nn.Linear(64, 64))
    outputs = model(torch.randn(40, 64)).flatten(0, 1)
    parameters = [one for one in model.parameters() if one.requires_grad]
    several = torch.randn(3, *outputs.shape)
    how = {"retain_graph": True, "allow_unused": True}
    together = torch.autograd.grad(outputs, parameters, several, is_grads_batched=True, **how)
    for i, one in enumerate(several):
        with counted() as ran:
            alone = torch.autograd.grad(outputs, parameters, one, **how)
        assert ran
        for batch, expected in zip(together, alone, strict=True):
            assert (batch is None) == (expected is None)
            if expected is not None:
                assert_near(batch[i], expected, TOLERANCES[torch.float32][1])
