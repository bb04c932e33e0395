"""Laplace's approximation on the last layer (MacKay 1992; Daxberger et al. 2021)."""

import copy
import math
import warnings
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes._checks import check_choice, check_number
from slimbayes.conversion import Conversion, Part, all_parameters, copy_of, find_converter, own_parameters
from slimbayes.ensembles._covariance_root import ROOTS
from slimbayes.ensembles.laplace import DenseNormalLinear
from slimbayes.ensembles.last_layer_curvature import CURVATURES, Curvature
from slimbayes.layers.base import BayesianLayer
from slimbayes.likelihoods import Categorical, Likelihood, mixture
from slimbayes.methods import mean_field  # noqa: F401  registers what can be converted
from slimbayes.methods._last_step import last_step, read, readable
from slimbayes.methods.registry import register_method
from slimbayes.model import BayesianModel

__all__ = ["dense_normal_model", "laplace"]

#: Prior precisions that are tried on validation data, and the draws that score them.
TRIED, DRAWS = tuple(10.0 ** (exponent / 2) for exponent in range(-4, 11)), 100
#: Between which the best prior precision is looked for, and how often the interval is halved.
LOG_PRECISIONS, BISECTIONS = (-40.0, 40.0), 60
#: Training examples on which draws are compared with the network, and nats that they may be worse than expected.
LOOKED_AT, SLACK = 2000, 0.05


@register_method(
    title="Laplace",
    rebuild=lambda net, include, freeze_base, **options: dense_normal_model(net, **options),
    after_training=True,
)
def laplace(
    net: nn.Module,
    train_batches: Iterable[tuple[Any, Tensor]],
    likelihood: str | dict[str, Any] | Likelihood = "categorical",
    *,
    structure: str = "full",
    prior_precision: float | str | None = None,
    validation_batches: Iterable[tuple[Any, Tensor]] | None = None,
    layer: str | None = None,
    temperature: float = 1.0,
    noise: str = "shared",
    batch_dim: int = 0,
) -> BayesianModel:
    r"""Give the last layer of a trained network a Gaussian posterior around its weights.

    .. math::
        q(w) = N(\hat w, \Sigma), \qquad \Sigma^{-1} = \frac1T \sum_n J_n^\top \Lambda_n J_n + \delta I

    with the layer's Jacobian :math:`J_n = \partial f_n / \partial w`, the likelihood's curvature :math:`\Lambda`
    (:math:`\operatorname{diag}(p) - p p^\top` of a softmax, :math:`I / \sigma^2` of a Gaussian), the prior
    N(0, 1 / delta) and the temperature T: the generalised Gauss-Newton form, exact for a Gaussian likelihood if the
    weights are its best ones.

    A layer whose weight is tied to another one (a decoder to its embedding) draws its own use of it alone.

    Args:
        net: A trained network, whose last step is an ``nn.Linear``: it returns logits, or means.
        train_batches: The training data, such as a ``DataLoader``: pairs of inputs (a tensor; a tuple or dict of
            several) and targets. They are gone through once, in evaluation mode; augmentation should be off.
        likelihood: ``"categorical"``, ``"gaussian"``, or one of these with options. The standard deviation of
            ``"gaussian"`` is the root mean square of the training residuals; ``sb.Gaussian(noise=0.1)`` states it.
        structure: Of the covariance of P weights: ``"full"`` (P^2 numbers), ``"kron"`` (a Kronecker product, for large
            layers) or ``"diag"``.
        prior_precision: delta; or how it is chosen: ``"validation"``, the one of some powers of ten whose draws have
            the best likelihood on ``validation_batches``; ``"marglik"``, the one with the largest marginal likelihood:
            that with :math:`\delta \|\hat w\|^2 = \sum_i \lambda_i / (\lambda_i + \delta)`, for eigenvalues
            :math:`\lambda` of the curvature (MacKay 1992). None for ``"validation"`` where there are such data, else
            ``"marglik"``. A network trained with ``weight_decay`` on the mean loss of N examples had N * weight_decay.
        validation_batches: Data that the network was not trained on, in the form of ``train_batches``. Where a network
            fits its training data almost perfectly, the marginal likelihood asks for far too wide a posterior, which is
            warned of, and these are what keeps the predictions as good as they were.
        layer: Name of the layer; None for the last ``nn.Linear`` in the order of definition.
        temperature: T; below 1 the posterior is narrower.
        noise: ``"shared"``: one weight for each draw. ``"example"``: one for each row.
        batch_dim: Axis of the batch in inputs and outputs of two or more dimensions.

    Returns:
        A ``BayesianModel`` of one member, with nothing left to train.

    Example:
        >>> net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        >>> batches = [(torch.randn(20, 8), torch.randint(3, (20,)))]
        >>> model = laplace(net, batches)
        >>> model(torch.randn(5, 8), samples=6).shape
        torch.Size([6, 5, 3])
    """
    check_number("temperature", temperature, low=0.0)
    if prior_precision is None:
        prior_precision = "marglik" if validation_batches is None else "validation"
    if isinstance(prior_precision, str):
        check_choice("prior_precision", prior_precision, ("marglik", "validation"))
    if (prior_precision == "validation") != (validation_batches is not None):
        raise ValueError(
            f"Expected arguments `prior_precision` to be 'validation' and `validation_batches` to be data, or neither, "
            f"but got {prior_precision!r} and {'none' if validation_batches is None else 'some'}. Add or drop the data."
        )
    start = 1.0 if isinstance(prior_precision, str) else prior_precision
    model = dense_normal_model(net, layer, structure, start, temperature, noise, batch_dim)
    name = model.options["layer"]
    reading = readable(likelihood)
    found = last_step(net, name, train_batches, reading)
    reading, features, targets = read(reading, isinstance(likelihood, Likelihood), *found)
    converted = model.net.get_submodule(name)
    assert isinstance(converted, DenseNormalLinear)
    head = tuple(part.detach().double() for part in converted.posterior.own_means())
    features = features.double()
    curvature = CURVATURES[structure](features, F.linear(features, *head), reading, temperature, len(head) > 1)
    if prior_precision == "marglik":
        start = best_precision(curvature.eigenvalues(), torch.cat([part.flatten() for part in head]))
    if prior_precision == "marglik" and isinstance(reading, Categorical):
        expected = expected_loss(curvature.eigenvalues(), start, temperature) / len(features)
        _warn_if_too_wide(curvature, converted, reading, features, targets, start, expected)
    if validation_batches is not None:
        seen = last_step(net, name, validation_batches, reading)
        start = _best_on(curvature, converted, reading, *read(reading, True, *seen)[1:])
    converted.posterior.root.load_state_dict(curvature.root(start))
    model.options["prior_precision"] = converted.posterior.prior_precision = start
    model.likelihood = reading.to(converted.weight)
    return model


def _draw_log_probs(
    curvature: Curvature,
    layer: DenseNormalLinear,
    reading: Likelihood,
    features: Tensor,
    targets: Tensor,
    precision: float,
) -> Tensor:
    """Return the log-likelihood under draws, ``(draws, n)``; those of all precisions meet the same noise."""
    features, root = features.double(), copy.deepcopy(layer.posterior.root).double()
    mean = layer.posterior.mean.detach().double()
    noise = torch.randn(DRAWS, len(mean), generator=torch.Generator().manual_seed(0), dtype=torch.double).to(mean)
    root.load_state_dict(curvature.root(precision))
    weights, biases = layer.parts(mean + root(noise))
    outputs = features @ weights.mT
    outputs = outputs if biases is None else outputs + biases.unsqueeze(1)
    return reading.log_prob(outputs, targets)


def _best_on(
    curvature: Curvature, layer: DenseNormalLinear, reading: Likelihood, features: Tensor, targets: Tensor
) -> float:
    """Return the one of ``TRIED`` whose draws have the best likelihood."""
    scores = [
        mixture(_draw_log_probs(curvature, layer, reading, features, targets, precision)).mean().item()
        for precision in TRIED
    ]
    return TRIED[scores.index(max(scores))]


def expected_loss(curvatures: Tensor, precision: float, temperature: float = 1.0) -> float:
    r"""Return by how much the training data's log-likelihood is lower under the draws, on average, than at the mean.

    Of the Gaussian with the likelihood's curvature :math:`\lambda_i / T` it is
    :math:`\frac T2 \sum_i \lambda_i / (\lambda_i + \delta)`, exactly if the likelihood is one.

    Example:
        >>> expected_loss(torch.tensor([3.0, 1.0]), precision=1.0)
        0.625
    """
    return temperature / 2 * (curvatures / (curvatures + precision)).sum().item()


def _warn_if_too_wide(
    curvature: Curvature,
    layer: DenseNormalLinear,
    reading: Likelihood,
    features: Tensor,
    targets: Tensor,
    precision: float,
    expected: float,
) -> None:
    """Warn if draws lose far more of the training data's likelihood than a Gaussian of this curvature would.

    So it is where a softmax is sure of all its training data, which has no curvature there, and much further out.
    """
    some = torch.linspace(0, len(features) - 1, min(len(features), LOOKED_AT), device=features.device).long()
    features, targets = features[some], targets[some]
    own = reading.log_prob(F.linear(features, *(part.double() for part in layer.posterior.own_means()))[None], targets)
    drawn = _draw_log_probs(curvature, layer, reading, features, targets, precision)
    lost = (own.mean() - drawn.mean()).item()
    if lost > 2 * expected + SLACK:
        warnings.warn(
            f"The posterior is too wide: on the training data its draws are {lost:.3g} nats an example worse than the "
            f"network, where {expected:.3g} would be right. For a network that fits its training data almost perfectly "
            f"the marginal likelihood chooses too small a prior precision, here {precision:.3g}. Let data that it has "
            "not seen choose it, validation_batches=[(x, y)], or give a larger `prior_precision`.",
            stacklevel=4,
        )


def dense_normal_model(
    net: nn.Module,
    layer: str | None = None,
    structure: str = "full",
    prior_precision: float = 1.0,
    temperature: float = 1.0,
    noise: str = "shared",
    batch_dim: int = 0,
) -> BayesianModel:
    """Return a model whose last layer has a Gaussian posterior of this structure, of unit covariance at first."""
    if not isinstance(net, nn.Module):
        raise TypeError(f"Expected argument `net` to be a torch.nn.Module, but got {type(net).__name__}.")
    if isinstance(net, BayesianModel) or any(isinstance(module, BayesianLayer) for module in net.modules()):
        raise ValueError(
            "Expected argument `net` to be a plain network, but it has been converted already. Give a member of it: "
            "model.member(0)."
        )
    check_choice("structure", structure, ROOTS)
    check_number("prior_precision", prior_precision, low=0.0, remedy="Or let it be 'marglik'.")
    name = _last_linear(net, layer)
    conversion = Conversion(copy_of(net), all_parameters(net))
    for path, module in conversion.net.named_modules():
        if size := own_parameters(module):
            part = Part(path, type(module).__name__, path == name, "only the last layer is random", size, size)
            if part.converted:
                part.reason = f"a Gaussian around its weights, {structure} covariance"
            conversion.parts.append(part)
    chosen = conversion.net.get_submodule(name)
    assert isinstance(chosen, nn.Linear)
    root = ROOTS[structure](chosen.out_features, chosen.in_features, chosen.bias is not None)
    DenseNormalLinear.adopt(chosen, root, float(prior_precision))
    options = {
        "layer": name,
        "structure": structure,
        "prior_precision": float(prior_precision),
        "temperature": float(temperature),
        "noise": noise,
        "freeze_base": False,
        "batch_dim": batch_dim,
    }
    return BayesianModel(conversion, "laplace", options)


def _last_linear(net: nn.Module, layer: str | None) -> str:
    # The posterior is of a weight, not of what a parametrization or a hook computes it from.
    able = [name for name, m in net.named_modules() if isinstance(m, nn.Linear) and isinstance(m.weight, nn.Parameter)]
    able = [name for name in able if not find_converter("mean_field", net.get_submodule(name))[1]]
    if not able:
        raise ValueError("Expected argument `net` to end in a plain nn.Linear, but it has none. Give it one.")
    if layer is not None:
        check_choice("layer", layer, able)
    return able[-1] if layer is None else layer


def best_precision(curvatures: Tensor, weights: Tensor) -> float:
    """Return the prior precision with the largest marginal likelihood, see ``sb.laplace``.

    Args:
        curvatures: Eigenvalues of the likelihood's curvature, ``(P,)``.
        weights: The best weights, ``(P,)``.

    Example:
        >>> round(best_precision(torch.tensor([3.0]), torch.tensor([1.0])), 4)  # delta = 3 / (3 + delta)
        0.7913
    """
    curvatures, size = curvatures.double().clamp(min=0), weights.double().square().sum()
    low, high = LOG_PRECISIONS
    for _ in range(BISECTIONS):  # one side falls with delta, the other rises
        middle = (low + high) / 2
        delta = math.exp(middle)
        low, high = (middle, high) if (curvatures / (curvatures + delta)).sum() > delta * size else (low, middle)
    return math.exp(low)
