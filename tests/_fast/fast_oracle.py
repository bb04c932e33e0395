"""The oracle of the fast paths: the plain operations, with the same draws."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes import _fast
from slimbayes._fast import row_noise

SEED = 5
MEMBERS = 2
#: By type: of outputs, and of gradients, relative to the largest entry of each tensor.
TOLERANCES = {torch.float32: (1e-5, 1e-4), torch.float64: (1e-10, 1e-10)}

#: By name, a layer and the shape of an example.
LAYERS = {
    "linear": (lambda **how: nn.Linear(5, 7, **how), (5,)),
    "linear_3d": (lambda **how: nn.Linear(5, 7, **how), (3, 5)),
    "conv1d": (lambda **how: nn.Conv1d(4, 6, 3, stride=2, padding=1, **how), (4, 9)),
    "conv2d": (lambda **how: nn.Conv2d(4, 6, 3, padding=1, **how), (4, 7, 6)),
    "conv2d_geometry": (
        lambda **how: nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(2, 0), dilation=(2, 1), groups=2, **how),
        (4, 7, 6),
    ),
    "conv3d": (lambda **how: nn.Conv3d(2, 3, 2, padding=1, **how), (2, 3, 4, 3)),
}

#: By name, the batch size, whether noise is flipped, and what the model is asked for.
PASSES = {
    "example": (6, False, {}),
    "example_samples": (6, False, {"samples": 3}),
    "flipped": (6, True, {}),
    "flipped_samples": (4, True, {"samples": 3}),
    "independent": (6, True, {"noise": "independent"}),
    "shared": (6, False, {"noise": "shared", "samples": 2}),
    "shared_many_rows": (10, False, {"noise": "shared", "samples": 2}),
    "location": (6, False, {"samples": 0}),
    "location_many_rows": (9, False, {"samples": 0}),
}


def convert(net, dtype=torch.float32, **options):
    """Return a model whose draws differ visibly from their locations, and biases from each other."""
    torch.manual_seed(SEED)
    model = sb.rank1(net, **{"members": MEMBERS, "dropout_rate": 0.1, **options}).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    model.rows_known = True  # or the kernels of passes that try the network would be counted, too
    return model


@contextmanager
def plain_path():
    """Let no rows be scaled by a kernel; draws are the same."""
    with pytest.MonkeyPatch.context() as patch:
        for operation in ("scale_rows", "scaled_linear"):
            patch.setattr(_fast, operation, lambda *args: None)
        yield


@contextmanager
def flipping(wanted=True):
    """Let even small passes share draws."""
    with pytest.MonkeyPatch.context() as patch:
        if wanted:
            patch.setattr(row_noise, "LEAST_TO_SHARE", 1)
        yield


@contextmanager
def counted():
    """Give a list with an entry for each time that a kernel has scaled rows, in a layer its input and its output."""
    taken = []

    def counting(operation, times):
        def count(*args):
            y = operation(*args)
            taken.extend([] if y is None else [y.shape] * times)
            return y

        return count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_fast, "scale_rows", counting(_fast.scale_rows, 1))
        patch.setattr(_fast, "scaled_linear", counting(_fast.scaled_linear, 2))
        yield taken


def loss_of(y):
    """Return a loss whose gradients differ from output to output."""
    weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape)
    return (weights * y + 0.1 * y.square()).sum()


def outcome(model, x, **how):
    """Return the outputs and all gradients of a pass, that of x if it needs one."""
    x = x.detach().requires_grad_(x.requires_grad)
    model.zero_grad()
    torch.manual_seed(SEED)
    y = model(x, **how)
    loss_of(y).backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return y.detach(), found | ({} if x.grad is None else {"x": x.grad})


def assert_same(found, expected):
    """Compare outputs and gradients."""
    (y, gradients), (expected_y, expected_gradients) = found, expected
    of_outputs, of_gradients = TOLERANCES[expected_y.dtype]
    assert_near(y, expected_y, of_outputs)
    assert gradients.keys() == expected_gradients.keys()
    for name, expected_gradient in expected_gradients.items():
        assert_near(gradients[name], expected_gradient, of_gradients, name)


def assert_near(found, expected, tolerance, name="output"):
    """Compare tensors, with a tolerance relative to the largest entry."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
    largest = expected.abs().amax().item() if expected.numel() else 0.0
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * largest, msg=lambda text: f"{name}: {text}")


def assert_fast_is_plain(model, x, **how):
    """Compare a pass with the same in plain operations; return the shapes that a kernel has scaled."""
    with counted() as taken:
        found = outcome(model, x, **how)
    with plain_path():
        assert_same(found, outcome(model, x, **how))
    return taken
