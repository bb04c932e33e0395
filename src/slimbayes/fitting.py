"""A posterior for a trained network, without training it: scales from the curvature of the likelihood."""

import math
import warnings
from collections.abc import Iterable, Sized
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from slimbayes import batching
from slimbayes._bar import Bar
from slimbayes._checks import check_count, check_number
from slimbayes._curvature import as_arguments, curvatures
from slimbayes.calibration.temperature import TemperatureScaling
from slimbayes.layers.base import Stochastic
from slimbayes.likelihoods import Gaussian, Likelihood, get_likelihood
from slimbayes.methods.registry import get_method, method_names
from slimbayes.model import BayesianModel
from slimbayes.prediction import Prediction

__all__ = ["fit_posterior"]

#: Steps of the search for the multiplier, first and last, and between which powers of two it stays.
FIRST_STEP, LAST_STEP, LOG2_BOUNDS = 1.0, 0.5, (-8.0, 8.0)

Batches = Iterable[tuple[Any, Tensor]]


def fit_posterior(
    net: nn.Module,
    batches: Batches,
    method: str = "rank1",
    likelihood: str | dict[str, Any] | Likelihood = "categorical",
    *,
    multiplier: float | None = None,
    tolerance: float = 0.0,
    validation_batches: Batches | None = None,
    temperature: TemperatureScaling | None = None,
    samples: int = 8,
    seed: int = 0,
    quiet: bool = False,
    **options: Any,
) -> BayesianModel:
    r"""Give a trained network a posterior without training it: minutes of work, and no optimiser to choose.

    The network's weights stay as they are, and the locations of what is random are where they leave it as it is. Each
    random number gets the scale

    .. math::
        \sigma_i = \frac{m}{\sqrt{h_i + 1 / \sigma_p^2}}, \qquad h_i = \sum_n (J_n^\top \Lambda_n J_n)_{ii}

    with the Jacobian of the outputs in these numbers, :math:`J_n`, the curvature of the likelihood in the outputs,
    :math:`\Lambda_n`, and the prior's scale :math:`\sigma_p`. With m = 1 this is the mean-field posterior of the
    linearised network: for a normal posterior and prior, the one with the smallest KL. Scales that are tied are the
    nearest ones in this sense. The curvature takes one pass forward and backward, the search for the multiplier m some
    passes forward, ``samples`` draws each.

    Factors of other families, such as Cauchy ones, get the same scales; what suits their tails is left to the search.
    Methods that compute their posterior themselves, such as ``"laplace"``, are given the batches as they are.

    Args:
        net: A trained network; it is copied.
        batches: Pairs of inputs (a tensor; a tuple or dict of several) and targets, that can be gone through several
            times, such as a ``DataLoader``; best of data that the network was not trained on, as it is more certain of
            the others than it should be. Augmentation should be off.
        method: Any method whose random numbers have scales of their own.
        likelihood: ``"categorical"``, ``"gaussian"``, ... The standard deviation of ``"gaussian"`` is the root mean
            square of the residuals; ``sb.Gaussian(noise=0.1)`` states it.
        multiplier: m; None for the one whose mixture of draws has the best log-likelihood on ``validation_batches``.
        tolerance: With a search: take the largest m whose mean log-likelihood is at most so many nats below the best.
        validation_batches: Data for the search; None for ``batches``.
        temperature: Calibrates the predictions that the search compares, and is left fitted to those of the model that
            is returned: ``temperature.apply(model.predict(x, samples=8))``.
        samples: Draws that the search compares.
        seed: Decides everything that is random here.
        quiet: Show no progress bar; it is shown on a terminal, where tqdm is installed.
        **options: Of the method. ``trained`` and ``freeze_base`` are true, and ``members`` is 1, unless they are given:
            members that begin as the same network would be the same posterior. With a frozen base a file holds the
            scales alone.

    Returns:
        A ``BayesianModel`` in evaluation mode.

    Example:
        >>> import slimbayes as sb
        >>> net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))  # yours, trained
        >>> x = torch.randn(500, 8)
        >>> batches = [(x, torch.distributions.Categorical(logits=net(x)).sample())]
        >>> scaling = sb.TemperatureScaling()
        >>> model = fit_posterior(net, batches, "rank1", multiplier=1.0, temperature=scaling)
        >>> scaling.apply(model.predict(torch.randn(5, 8), samples=8)).probs.shape
        torch.Size([5, 3])
    """
    check_number("tolerance", tolerance, low=0.0, or_low=True)
    check_count("samples", samples, 1)
    check_count("seed", seed, 0)
    if multiplier is not None:
        check_number("multiplier", multiplier, low=0.0, remedy="1 is the curvature's own scale.")
    found = get_method(method)
    batches = _kept("batches", batches)
    validation = batches if validation_batches is None else _kept("validation_batches", validation_batches)
    found.check_options(options)
    if found.after_training:
        if multiplier is not None or tolerance > 0:
            raise ValueError(
                f"Expected arguments `multiplier` and `tolerance` to be left out with method={found.name!r}, which "
                f"computes its posterior itself, but got {multiplier} and {tolerance}. It has options of its own."
            )
        if validation_batches is not None and "validation_batches" in found.options:
            options["validation_batches"] = validation
        model: BayesianModel = found.make(net, batches, likelihood, **options).eval()
    else:
        model = _with_curvature(found, net, batches, likelihood, options, seed, quiet)
        parts = _free_parts(model)
        scales = [part.scale.detach().double() for part in parts]
        if multiplier is None:
            multiplier = _search(model, parts, scales, validation, temperature, tolerance, samples, seed, quiet)
        _stretch(parts, scales, multiplier)
    if temperature is not None:
        prediction, targets = _predicted(model, validation, samples, seed)
        temperature.fit(prediction, targets)
    return model


def _kept(name: str, batches: Batches) -> Batches:
    """Return batches that can be gone through again."""
    if iter(batches) is batches:
        batches = list(batches)
    first = next(iter(batches), None)
    if first is None:
        raise ValueError(f"Expected argument `{name}` to have examples, but it is empty. Give some.")
    if not isinstance(first, (tuple, list)) or len(first) != 2 or not isinstance(first[1], Tensor):
        raise TypeError(
            f"Expected argument `{name}` to give pairs of inputs and a tensor of targets, but got "
            f"{type(first).__name__}. Put several inputs into a tuple or dict: ((x1, x2), y)."
        )
    return batches


def _length(batches: Batches) -> int | None:
    return len(batches) if isinstance(batches, Sized) else None


def _nothing() -> None:
    """Count no step: there is no bar."""


def _free_parts(model: BayesianModel) -> list[Stochastic]:
    return [part for part in model.stochastic() if part.prior_scale is not None]


def _with_curvature(
    found: Any,
    net: nn.Module,
    batches: Batches,
    likelihood: Any,
    options: dict[str, Any],
    seed: int,
    quiet: bool,
) -> BayesianModel:
    """Return a model whose scales are those of m = 1."""
    if found.of_networks or found.sampled:
        raise _no_scales(found.name)
    usual = {"trained": True, "freeze_base": True, "members": 1}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: BayesianModel = found.make(net, **{k: v for k, v in usual.items() if k in found.options} | options)
    model.eval()
    parts = _free_parts(model)
    if not parts:
        raise _no_scales(found.name)
    model.likelihood = reading = _reading(model, likelihood, batches)
    generator = Generator().manual_seed(seed)
    with Bar(_length(batches), "curvature", "batch", quiet) as bar:
        values, _ = curvatures(model, parts, batches, reading, generator, bar.step or _nothing)
    for part, value in zip(parts, values, strict=True):
        if not value.isfinite().all():
            raise ValueError(
                f"The curvature of the likelihood in {part.name} is not finite. Check the network's outputs on "
                "`batches`, and that they are not in half precision."
            )
        prior = part.prior_scale
        assert prior is not None
        scale = (value + prior.double().square().reciprocal()).rsqrt()
        part.take_scale(scale.view(part.scale.shape))
    return model


def _no_scales(method: str) -> ValueError:
    return ValueError(
        "Expected argument `method` to have scales that can be set, as 'rank1', 'mean_field' and 'k_tied' have, but "
        f"got {method!r}. Choose another of {method_names()}."
    )


def _reading(model: BayesianModel, likelihood: Any, batches: Batches) -> Likelihood:
    """Return the likelihood; a Gaussian that is only named has the noise of the residuals."""
    reading = get_likelihood(likelihood).to(model.device)
    if isinstance(likelihood, Likelihood) or not list(reading.parameters()):
        return reading
    if not isinstance(reading, Gaussian) or reading.outputs is not None:
        raise ValueError(
            f"Expected argument `likelihood` to have nothing to learn, but got {reading.spec()}. Give one that was "
            "trained, or whose values are stated, such as sb.Gaussian(noise=0.1)."
        )
    prediction, targets = _predicted(model, batches, 0, 0)
    variance = reading.residual_variance(prediction.outputs, targets).item()
    if not variance > 0:
        raise ValueError("The residuals are all 0. State the noise: likelihood=sb.Gaussian(noise=0.1).")
    return Gaussian(noise=math.sqrt(variance))


def _predicted(model: BayesianModel, batches: Batches, samples: int, seed: int) -> tuple[Prediction, Tensor]:
    """Return the predictions of all batches, the same ones for the same seed, and the targets."""
    outputs, targets, batch_dim = [], [], model.sampling.batch_dim
    prediction: Any = None
    for number, (inputs, its) in enumerate(batches):
        args, kwargs = ((), inputs) if isinstance(inputs, dict) else (as_arguments(inputs), {})
        prediction = model.predict(*args, **kwargs, samples=samples, seed=seed + number, keep_draws=True)
        drawn, read = prediction.outputs, its.to(model.device)
        drawn, read = batching.batch_first(drawn, read, batch_dim)
        outputs.append(drawn)
        targets.append(read)
    return Prediction(torch.cat(outputs, 1), model.likelihood, model.members), torch.cat(targets)


def _stretch(parts: list[Stochastic], scales: list[Tensor], multiplier: float) -> None:
    for part, scale in zip(parts, scales, strict=True):
        part.take_scale(multiplier * scale)


def _search(
    model: BayesianModel,
    parts: list[Stochastic],
    scales: list[Tensor],
    batches: Batches,
    temperature: TemperatureScaling | None,
    tolerance: float,
    samples: int,
    seed: int,
    quiet: bool,
) -> float:
    """Return the best multiplier, or the largest within the tolerance: uphill in steps of 2, then of sqrt(2)."""
    scores: dict[float, float] = {}

    with Bar(None, "search", "pass", quiet) as bar:

        def nll(log2: float) -> float:
            if log2 not in scores:
                _stretch(parts, scales, 2.0**log2)
                scores[log2] = _score(*_predicted(model, batches, samples, seed), temperature)
                (bar.step or _nothing)()
            return scores[log2]

        best, stride = 0.0, FIRST_STEP
        low, high = LOG2_BOUNDS
        while stride >= LAST_STEP:
            around = [at for at in (best - stride, best + stride) if low <= at <= high]
            found = min(around, key=nll)
            if nll(found) < nll(best):
                best = found
            else:
                stride /= 2
        most = nll(best) + tolerance
        while best < high and tolerance > 0 and nll(best + LAST_STEP) <= most:
            best += LAST_STEP
    if not math.isfinite(scores[best]):
        raise ValueError(
            "No multiplier gives the draws a finite log-likelihood on the data. Check that the network is trained, and "
            "that inputs and targets belong together."
        )
    if best in LOG2_BOUNDS:
        warnings.warn(
            f"The search for the multiplier ended at its bound, {2.0**best:g}: on these data the "
            + ("network alone is better than any spread." if best < 0 else "widest posterior is the best.")
            + " Give data that the network was not trained on, or state `multiplier`.",
            stacklevel=4,
        )
    return float(2.0**best)


def _score(prediction: Prediction, targets: Tensor, temperature: TemperatureScaling | None) -> float:
    """Return the negative log-likelihood of the mixture, after the temperature that is best for it."""
    score = -prediction.log_likelihood(targets).mean().item()
    if temperature is not None and math.isfinite(score):
        copied = replace(prediction, draws=prediction.outputs.clone())  # of what it was fitted on, apply() wants none
        score = -temperature.fit(prediction, targets).apply(copied).log_likelihood(targets).mean().item()
    return score if math.isfinite(score) else math.inf
