"""The KL divergence between any two distributions that we use."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch import distributions as td

from slimbayes.distributions import Delta, RootInverseGamma

__all__ = ["kl_divergence"]

#: Nodes of the quadrature rule. For normal posteriors of scale 1e-3 to 1, priors of scale 1e-4 to 1 and locations up
#: to 3 apart, its error is below 2e-6 nats under Cauchy and Student-t (df 3) priors and below 1e-4 under the
#: horseshoe, in float64; in float32 below 2e-4 (tests/test_distributions.py).
QUADRATURE_NODES = 128
#: The rule ends this many posterior standard deviations from the location; the mass beyond is 2e-9.
QUADRATURE_REACH = 6.0
#: Nodes of each of the three parts of the rule for heavy tails. For Student-t posteriors of 1 degree of freedom or
#: more, scales from 1e-3 to 1, prior scales from 1e-4 to 1 and locations up to 3 apart, its error is below 2e-6 nats
#: plus 2e-6 of the KL, in float32 1e-4; with fewer degrees it grows, to 1e-4 at 1/2 (tests/test_distributions.py).
HEAVY_NODES = 96
#: Logarithm of the part of the KL that this rule leaves out at each end.
HEAVY_REST = -17.0
#: Draws per element of the Monte Carlo KL, which serves only distributions that are not ours.
MONTE_CARLO_SAMPLES = 16


def _sinh_rule(centre: Tensor, width: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    r"""Return points and weights for expectations over a standard normal of a function with one narrow feature.

    .. math::
        \mathbb E\,g(\varepsilon) \approx \sum_i w_i\, g(\varepsilon_i), \qquad
        \varepsilon_i = c + w \sinh(v_i), \qquad w_i \propto \phi(\varepsilon_i) \cosh(v_i)

    The trapezoidal rule in v puts as many points within each power of ten of the distance to the feature, and
    symmetrically around it, so that odd poles in a gradient cancel. Gauss-Hermite points, blind to the feature,
    are off by half a nat and more where it is narrower than their gaps, and their gradients point anywhere.

    Args:
        centre: Where the feature is, in standard deviations from the mean.
        width: Its width, in standard deviations.
        nodes: Number of points.

    Shape:
        - ``centre``, ``width``: ``(*)``. Both outputs: ``(nodes, *)``.
    """
    # A feature far outside is as good as one a little outside, and does not cost digits. A pole has no width
    # of its own: a hundredth of a standard deviation resolves it.
    centre = centre.clamp(-2 * QUADRATURE_REACH, 2 * QUADRATURE_REACH)
    width = width.clamp(1e-9, 1e-2)
    low, high = (((end - centre) / width).asinh() for end in (-QUADRATURE_REACH, QUADRATURE_REACH))
    step = (high - low) / nodes
    index = torch.arange(nodes, device=centre.device, dtype=centre.dtype).view(-1, *[1] * centre.dim())
    v = ((low / step).floor() + 0.5 + index) * step
    points = centre + width * v.sinh()
    weights = v.cosh() * (-points.square() / 2).exp()
    return points, weights / weights.sum(0)


def _heavy_rule(q: td.StudentT, p: td.Distribution, nodes: int) -> tuple[Tensor, Tensor]:
    r"""Return points, and weights for integrals over the real line of a Student-t's density times a logarithm.

    In standard units of ``q``, ``p`` bends at a distance c from ``q``'s location. The line is cut at both, and each
    part is stretched by a logarithm towards its ends, where the trapezoidal rule in v is exact but for
    :math:`\exp(-\pi^2 / h)` at a step h, however far apart or narrow they are:

    .. math::
        t = -e^v, \qquad t = \frac{c}{1 + e^{-v}}, \qquad t = c + e^v

    Shape:
        - Both outputs: ``(3 * nodes, *)``.
    """
    q = q.expand(torch.broadcast_shapes(q.batch_shape, p.batch_shape))
    centre, _ = _feature(q, p)
    c = centre.abs().clamp_min(torch.finfo(centre.dtype).eps)
    index = (torch.arange(nodes, device=c.device, dtype=c.dtype) + 0.5).view(-1, *[1] * c.dim())
    far = 0.5 * q.df.log() - HEAVY_REST / q.df  # the density falls by t^-df
    ends = (
        (torch.full_like(c, HEAVY_REST), far),
        (HEAVY_REST - c.clamp_min(1.0).log(), torch.full_like(c, -HEAVY_REST)),
        (HEAVY_REST + c.clamp_min(1.0).log(), far + c.clamp_min(1.0).log()),
    )
    steps = [(high - low) / nodes for low, high in ends]
    left, between, right = (low + step * index for (low, _), step in zip(ends, steps, strict=True))
    points = torch.cat([-left.exp(), c * between.sigmoid(), c + right.exp()])
    weights = torch.cat(
        [
            steps[0] * left.exp(),
            steps[1] * c * between.sigmoid() * (-between).sigmoid(),
            steps[2] * right.exp(),
        ]
    )
    return torch.where(centre < 0, -points, points), weights


def _feature(q: td.Normal | td.LogNormal | td.StudentT, p: td.Distribution) -> tuple[Tensor, Tensor]:
    """Return where the log density of ``p`` bends, and over what width, in standard units of ``q``'s noise."""
    centre, width = getattr(p, "loc", None), getattr(p, "scale", None)
    if centre is None or width is None:
        return torch.zeros_like(q.loc), torch.ones_like(q.loc)
    if isinstance(q, td.LogNormal):
        positive = centre.clamp_min(torch.finfo(centre.dtype).tiny)
        centre, width = torch.where(centre > 0, positive.log(), q.loc), width / positive
    return (centre - q.loc) / q.scale, (width / q.scale).expand_as(centre + q.loc)


@td.register_kl(td.LogNormal, td.Normal)
def _kl_log_normal_normal(q: td.LogNormal, p: td.Normal) -> Tensor:
    squared_distance = q.variance + (q.mean - p.loc).square()
    return -q.entropy() + squared_distance / (2 * p.scale.square()) + (p.scale * math.sqrt(2 * math.pi)).log()


@td.register_kl(td.LogNormal, RootInverseGamma)
def _kl_log_normal_root_inverse_gamma(q: td.LogNormal, p: RootInverseGamma) -> Tensor:
    # E log x = loc and E x^-2 = exp(2 scale^2 - 2 loc).
    a, rate = p.concentration, p.rate
    tail = rate * (2 * (q.scale.square() - q.loc)).exp()
    return -q.entropy() - math.log(2) - a * rate.log() + a.lgamma() + (2 * a + 1) * q.loc + tail


@td.register_kl(td.Cauchy, td.StudentT)
def _kl_cauchy_student_t(q: td.Cauchy, p: td.StudentT) -> Tensor:
    # E log((x - m)^2 + w^2) = log((loc - m)^2 + (scale + w)^2) of a Cauchy distribution.
    width = p.df.sqrt() * p.scale
    constant = ((p.df + 1) / 2).lgamma() - (p.df / 2).lgamma() - 0.5 * (p.df * math.pi).log() - p.scale.log()
    squares = (q.scale + width).square() + (q.loc - p.loc).square()
    return -q.entropy() - constant + (p.df + 1) / 2 * (squares.log() - 2 * width.log())


@td.register_kl(td.StudentT, td.Normal)
def _kl_student_t_normal(q: td.StudentT, p: td.Normal) -> Tensor:
    spread = torch.where(q.df > 2, q.df / (q.df - 2), math.inf)
    squared_distance = q.scale.square() * spread + (q.loc - p.loc).square()
    return -q.entropy() + squared_distance / (2 * p.scale.square()) + (p.scale * math.sqrt(2 * math.pi)).log()


@td.register_kl(td.Cauchy, td.Normal)
def _kl_cauchy_normal(q: td.Cauchy, p: td.Normal) -> Tensor:
    return torch.full_like(q.loc + p.loc, math.inf)


def _kl_normal_normal(q: td.Normal | td.LogNormal, p: td.Normal | td.LogNormal) -> Tensor:
    squared_distance = ((q.loc - p.loc) / p.scale).square()
    ratio = (q.scale / p.scale).square()
    return 0.5 * (ratio + squared_distance - 1 - ratio.log())


def _kl_cauchy_cauchy(q: td.Cauchy, p: td.Cauchy) -> Tensor:
    return (((p.scale + q.scale).square() + (p.loc - q.loc).square()) / (4 * p.scale * q.scale)).log()


#: Those of our families' pairs with a closed form. How torch looks them up cannot be traced.
COMPILED_FORMS: dict[Any, Callable[[Any, Any], Tensor]] = {
    (td.Normal, td.Normal): _kl_normal_normal,
    (td.LogNormal, td.LogNormal): _kl_normal_normal,
    (td.LogNormal, td.Normal): _kl_log_normal_normal,
    (td.Cauchy, td.Cauchy): _kl_cauchy_cauchy,
    (td.LogNormal, RootInverseGamma): _kl_log_normal_root_inverse_gamma,
    (td.Cauchy, td.Normal): _kl_cauchy_normal,
    (td.Cauchy, td.StudentT): _kl_cauchy_student_t,
    (td.StudentT, td.Normal): _kl_student_t_normal,
}


def _full_precision(q: td.Distribution) -> td.Distribution:
    """Return ``q`` with half-precision parameters in float32, where its KL has digits left."""
    parameters = {name: getattr(q, name) for name in q.arg_constraints}
    if not {x.dtype for x in parameters.values()} & {torch.float16, torch.bfloat16}:
        return q
    return type(q)(**{name: x.float() for name, x in parameters.items()}, validate_args=False)


def kl_divergence(
    q: td.Distribution,
    p: td.Distribution,
    nodes: int = QUADRATURE_NODES,
    samples: int = MONTE_CARLO_SAMPLES,
) -> Tensor:
    r"""Return :math:`KL(q \| p)` element by element.

    A closed form where one is registered: normal, log-normal, Cauchy
    (:math:`\log\frac{(a+b)^2 + (m-n)^2}{4ab}`), a log-normal under the root of an inverse gamma, a Cauchy under a
    Student-t, and log-normal, Student-t and Cauchy under a normal, which is infinite for a Cauchy and for a Student-t
    with at most 2 degrees of freedom. Quadrature where ``q`` is normal, log-normal, Student-t or Cauchy;
    ``samples`` reparameterised draws where it is none of ours. For a point mass ``q`` the divergence is
    infinite but for a constant: without that constant it is :math:`-\log p(loc)`, and 0 if ``p`` is a
    point mass too (BatchEnsemble has no KL).

    Shape:
        - ``q``, ``p``: batch shapes that broadcast to ``(*)``. Output: ``(*)``.

    Example:
        >>> q = td.Cauchy(torch.tensor(0.0), torch.tensor(1.0))
        >>> kl_divergence(q, td.Cauchy(torch.tensor(1.0), torch.tensor(2.0)))
        tensor(0.2231)
    """
    if isinstance(q, Delta):
        if isinstance(p, Delta):
            return torch.zeros_like(q.loc)
        # Positive distributions of torch give a negative value a density, or NaN.
        return torch.where(p.support.check(q.loc), -p.log_prob(q.loc), math.inf)  # type: ignore[union-attr]
    if isinstance(p, Delta):
        return torch.full(torch.broadcast_shapes(q.batch_shape, p.batch_shape), math.inf).to(p.loc)
    q = _full_precision(q)
    closed_form = COMPILED_FORMS.get((type(q), type(p))) if torch.compiler.is_compiling() else td.kl_divergence
    try:
        if closed_form is not None:
            return closed_form(q, p)
    except NotImplementedError:
        pass
    if isinstance(q, (td.Normal, td.LogNormal)):
        with torch.no_grad():
            points, weights = _sinh_rule(*_feature(q, p), nodes)
        values = q.loc + q.scale * points
        values = values.exp() if isinstance(q, td.LogNormal) else values
        return -q.entropy() - (p.log_prob(values) * weights).sum(0)
    if isinstance(q, (td.StudentT, td.Cauchy)):
        heavy = q if isinstance(q, td.StudentT) else td.StudentT(1.0, q.loc, q.scale, validate_args=False)
        with torch.no_grad():
            points, weights = _heavy_rule(heavy, p, HEAVY_NODES)
            offsets = heavy.scale * points
            values = heavy.loc + offsets
        # The values stay where they are while q moves: a gradient of log p, which may have a pole, is not needed.
        points = (offsets + (heavy.loc.detach() - heavy.loc)) / heavy.scale
        density = td.StudentT(heavy.df, validate_args=False).log_prob(points).exp()
        moved = heavy.scale.detach() / heavy.scale  # 1, but for its gradient
        return -q.entropy() - (weights * moved * density * p.log_prob(values)).sum(0)
    q = q.expand(torch.broadcast_shapes(q.batch_shape, p.batch_shape))
    values = q.rsample(torch.Size((samples,)))
    return (q.log_prob(values) - p.log_prob(values)).mean(0)
