"""Laplace's approximation on the last layer (MacKay 1992; Daxberger et al. 2021), computed by laplace-torch."""

import copy
import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from slimbayes._checks import check_choice, check_number
from slimbayes.conversion import Conversion, Part, all_parameters, copy_of, find_converter, own_parameters
from slimbayes.ensembles.covariance_root import ROOTS
from slimbayes.ensembles.laplace import DenseNormalLinear
from slimbayes.layers.base import BayesianLayer
from slimbayes.likelihoods import Categorical, Gaussian, Likelihood
from slimbayes.methods import mean_field  # noqa: F401  registers what can be converted
from slimbayes.methods.last_step import last_step, read, readable
from slimbayes.methods.registry import register_method
from slimbayes.model import BayesianModel

__all__ = ["dense_normal_model", "laplace"]

#: Numbers that laplace-torch may hold at once for a batch.
MAX_NUMBERS = 2**24
#: Between which the best prior precision is looked for, and how often the interval is halved.
LOG_PRECISIONS, BISECTIONS = (-40.0, 40.0), 60


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
    prior_precision: float | str = 1.0,
    layer: str | None = None,
    temperature: float = 1.0,
    noise: str = "shared",
    batch_dim: int = 0,
) -> BayesianModel:
    r"""Give the last layer of a trained network a Gaussian posterior around its weights; needs laplace-torch.

    .. math::
        q(w) = N(\hat w, \Sigma), \qquad \Sigma^{-1} = \frac1T \sum_n J_n^\top \Lambda_n J_n + \delta I

    with the layer's Jacobian :math:`J_n = \partial f_n / \partial w`, the likelihood's curvature :math:`\Lambda`
    (:math:`\operatorname{diag}(p) - p p^\top` of a softmax, :math:`I / \sigma^2` of a Gaussian), the prior
    N(0, 1 / delta) and the temperature T: the generalised Gauss-Newton form, exact for a Gaussian likelihood if the
    weights are its best ones. The saved model loads and predicts without laplace-torch.

    A layer whose weight is tied to another one (a decoder to its embedding) draws its own use of it alone.

    Args:
        net: A trained network, whose last step is an ``nn.Linear``: it returns logits, or means.
        train_batches: The training data, such as a ``DataLoader``: pairs of inputs (a tensor; a tuple or dict of
            several) and targets. They are gone through once, in evaluation mode; augmentation should be off.
        likelihood: ``"categorical"``, ``"gaussian"``, or one of these with options. The standard deviation of
            ``"gaussian"`` is the root mean square of the training residuals; ``sb.Gaussian(noise=0.1)`` states it.
        structure: Of the covariance of P weights: ``"full"`` (P^2 numbers), ``"kron"`` (a Kronecker product, for large
            layers) or ``"diag"``.
        prior_precision: delta; ``"marglik"`` for the one with the largest marginal likelihood: that with
            :math:`\delta \|\hat w\|^2 = \sum_i \lambda_i / (\lambda_i + \delta)`, for eigenvalues :math:`\lambda` of
            the curvature (MacKay 1992). A network trained with ``weight_decay`` on the mean loss of N examples had
            N * weight_decay.
        layer: Name of the layer; None for the last ``nn.Linear`` in the order of definition.
        temperature: T; below 1 the posterior is narrower.
        noise: ``"shared"``: one weight for each draw. ``"example"``: one for each row.
        batch_dim: Axis of the batch in inputs and outputs of two or more dimensions.

    Returns:
        A ``BayesianModel`` of one member, with nothing left to train.

    Example:
        >>> net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        >>> batches = [(torch.randn(20, 8), torch.randint(3, (20,)))]
        >>> model = laplace(net, batches)  # doctest: +SKIP
        >>> model(torch.randn(5, 8), samples=6).shape  # doctest: +SKIP
        torch.Size([6, 5, 3])
    """
    check_number("temperature", temperature, low=0.0)
    if isinstance(prior_precision, str):
        check_choice("prior_precision", prior_precision, ("marglik",))
    library = _library()
    start = 1.0 if isinstance(prior_precision, str) else prior_precision
    model = dense_normal_model(net, layer, structure, start, temperature, noise, batch_dim)
    name = model.options["layer"]
    reading = readable(likelihood)
    found = last_step(net, name, train_batches, reading)
    reading, features, targets = read(reading, isinstance(likelihood, Likelihood), *found)
    converted = model.net.get_submodule(name)
    assert isinstance(converted, DenseNormalLinear)
    with warnings.catch_warnings(), _double_by_default():
        warnings.simplefilter("ignore")
        fitted = library.Laplace(
            nn.Sequential(nn.Identity(), _plain_copy(converted)),
            "classification" if isinstance(reading, Categorical) else "regression",
            subset_of_weights="last_layer",
            hessian_structure=structure,
            last_layer_name="1",
            prior_precision=start,
            temperature=temperature,
            # For a diagonal the default backend makes the Jacobians of all outputs: hundreds of times the work.
            backend=library.curvature.BackPackGGN if structure == "diag" else None,
            **({"sigma_noise": reading.noise} if isinstance(reading, Gaussian) else {}),
        )
        fitted.fit(_loader(features.double(), targets, converted, structure))
        if prior_precision == "marglik":
            means = torch.cat([p.detach().flatten() for p in converted.posterior.own_means()])
            fitted.prior_precision = best_precision(_curvatures(fitted, structure), means)
    converted.posterior.root.load_state_dict(_root_of(fitted, structure))
    model.options["prior_precision"] = converted.posterior.prior_precision = float(fitted.prior_precision)
    model.likelihood = reading.to(converted.weight)
    return model


def dense_normal_model(
    net: nn.Module,
    layer: str | None = None,
    structure: str = "full",
    prior_precision: float = 1.0,
    temperature: float = 1.0,
    noise: str = "shared",
    batch_dim: int = 0,
) -> BayesianModel:
    """Return a model whose last layer has a Gaussian law of this structure, with unit covariance until it is set."""
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


def _library() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module("laplace")
    except ImportError as error:
        raise ImportError(f"sb.laplace needs {error.name}: pip install laplace-torch") from error


def _last_linear(net: nn.Module, layer: str | None) -> str:
    able = [name for name, module in net.named_modules() if isinstance(module, nn.Linear)]
    able = [name for name in able if not find_converter("mean_field", net.get_submodule(name))[1]]
    if not able:
        raise ValueError("Expected argument `net` to end in a plain nn.Linear, but it has none. Give it one.")
    if layer is not None:
        check_choice("layer", layer, able)
    return able[-1] if layer is None else layer


@contextmanager
def _double_by_default() -> Iterator[None]:
    """Let tensors that laplace-torch makes for itself have the type of those that it is given."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.double)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _loader(features: Tensor, targets: Tensor, layer: nn.Linear, structure: str) -> DataLoader[Any]:
    outputs, inputs = layer.weight.shape
    a_row = outputs * (outputs * (inputs + 1) if structure == "full" else outputs + inputs)
    return DataLoader(TensorDataset(features, targets), batch_size=max(1, MAX_NUMBERS // a_row))


def _plain_copy(layer: nn.Linear) -> nn.Linear:
    head = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None, layer.weight.device, torch.double)
    head.load_state_dict({name: copy.deepcopy(p.detach()) for name, p in layer.named_parameters(recurse=False)})
    return head


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


def _curvatures(fitted: Any, structure: str) -> Tensor:
    """Return the eigenvalues of the likelihood's curvature as the structure has it, ``(P,)``."""
    if structure == "full":
        return torch.linalg.eigvalsh(fitted.posterior_precision) - fitted.prior_precision
    root = _root_of(fitted, structure)
    return torch.cat([root[name].flatten() for name in root if name.endswith("std")]) ** -2 - fitted.prior_precision


def _root_of(fitted: Any, structure: str) -> dict[str, Tensor]:
    """Return the buffers of a ``CovarianceRoot`` from a posterior of laplace-torch."""
    if structure != "kron":
        return {"cholesky" if structure == "full" else "std": fitted.posterior_scale}
    precision = fitted.posterior_precision
    bases, values, deltas = precision.eigenvectors, precision.eigenvalues, precision.deltas
    one = torch.ones_like(values[0][0][:1])  # a weight of one number has one factor
    outputs, inputs = values[0] if len(values[0]) == 2 else (values[0][0], one)
    state = {
        "output_basis": bases[0][0],
        "input_basis": bases[0][1] if len(bases[0]) == 2 else one.view(1, 1),
        "std": (torch.outer(outputs, inputs) + deltas[0]).rsqrt(),
    }
    bias = {"bias_basis": bases[1][0], "bias_std": (values[1][0] + deltas[1]).rsqrt()} if len(bases) > 1 else {}
    nothing = state["std"].new_zeros(0)
    return {**state, "bias_basis": nothing.view(0, 0), "bias_std": nothing, **bias}
