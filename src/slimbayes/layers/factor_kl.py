"""The KL of all factors of a network at once: a few operations in all instead of thirty for each factor."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from slimbayes.divergence import kl_divergence
from slimbayes.families import Cauchy, DeltaFamily, Family, LogNormal, Normal
from slimbayes.layers.base import Stochastic
from slimbayes.layers.factor import Factor
from slimbayes.layers.own_gradients import autograd_wanted, gradients_by_autograd, plain_operations_wanted
from slimbayes.layers.scaled_noise import scale_and_slope
from slimbayes.native import addresses, integers, kernel
from slimbayes.priors import Prior, softplus_scale

__all__ = ["divergences"]

#: Returns the sum over all elements, and writes their gradients over the locations and scales. The last is memory.
ClosedForm = Callable[[Tensor, Tensor, float, float, Tensor], Tensor]


def _normal(loc: Tensor, scale: Tensor, centre: float, spread: float, buffer: Tensor) -> Tensor:
    r"""With :math:`z = (\mu - c) / b` and :math:`r = \sigma / b`: :math:`\sum \frac12 (z^2 + r^2 - 1) - \log r`."""
    precision = spread**-2
    distances = loc.sub_(centre).dot(loc) * (precision / 2)
    logs = torch.div(scale, spread, out=buffer).log_().addcmul_(scale, scale, value=-precision / 2).add_(0.5).sum()
    loc.mul_(precision)
    torch.reciprocal(scale, out=buffer)
    scale.mul_(precision).sub_(buffer)
    return distances - logs


def _cauchy(loc: Tensor, scale: Tensor, centre: float, spread: float, buffer: Tensor) -> Tensor:
    r"""With :math:`d = \mu - c` and :math:`w = \sigma + b`: :math:`\sum \log(w^2 + d^2) - \log 4 b \sigma`."""
    width = scale + spread
    squares = torch.square(width, out=buffer).addcmul_(loc.sub_(centre), loc)
    total = (squares / scale).div_(4 * spread).log_().sum()
    half = squares.mul_(0.5)
    loc.div_(half)
    torch.sub(width.div_(half), scale.reciprocal_(), out=scale)
    return total


#: By the law of posterior and prior. The logarithm changes nothing about a KL.
CLOSED_FORMS: dict[type[Family], ClosedForm] = {Normal: _normal, LogNormal: _normal, Cauchy: _cauchy}


def divergences(modules: Iterable[nn.Module]) -> Iterator[tuple[Tensor, int]]:
    """Yield what the random parts and priors among ``modules`` pay, summed over members, with the number of these.

    Factors with one closed form and one prior of fixed scale are one term. Others, and all of them where somebody
    looks into operations, are a term each.

    Example:
        >>> import slimbayes as sb
        >>> net = sb.rank1(nn.Sequential(nn.Linear(8, 3), nn.Linear(3, 2)), members=4).net
        >>> [(total.shape, members) for total, members in divergences(net.modules())]
        [(torch.Size([]), 4)]
    """
    alike: dict[Any, list[Factor]] = {}
    plain = plain_operations_wanted()
    module: Any
    for module in modules:
        kind = type(module)
        if kind is Factor:
            family, prior, loc = module.family, module._modules["prior"], module._parameters["loc"]
            law = type(family)
            if law is type(prior.family) and prior.rho is None:
                if law is DeltaFamily:
                    continue  # nothing to pay
                if law in CLOSED_FORMS and not plain:
                    key = law, prior.loc, prior.std, loc.shape[0], loc.dtype, loc.device
                    alike.setdefault(key, []).append(module)
                    continue
        if issubclass(kind, Stochastic):
            divergence = module.kl()
            yield (divergence.sum(), divergence.shape[0]) if divergence.dim() else (divergence, 1)
        elif kind is Prior and (penalty := module.penalty()) is not None:
            yield penalty, 1
    for key, factors in alike.items():
        parameters = [factor._parameters[name] for name in ("loc", "rho") for factor in factors]
        yield _KL.apply(factors[0].family, factors[0].prior, *parameters), key[3]


def _plain(family: Family, prior: Prior, *parameters: Tensor) -> Tensor:
    loc, rho = torch.cat([x.flatten() for x in parameters]).chunk(2)
    return kl_divergence(family.distribution(loc, softplus_scale(rho)), prior.distribution(loc)).sum()


def _compiled_normal(prior: Prior, parameters: Sequence[Tensor]) -> tuple[Tensor, Tensor] | None:
    """Return the sum of ``_normal`` over all factors and its gradients, flat, from one pass; or None."""
    first = parameters[0]
    dtype = first.dtype
    run = kernel("normal_kl", dtype)
    if run is None or not all(x.is_cpu and x.dtype is dtype and x.is_contiguous() for x in parameters):
        return None
    count = len(parameters) // 2
    sizes = [x.numel() for x in parameters]
    slopes = first.new_empty(sum(sizes))
    of_rho = slopes[slopes.numel() // 2 :]
    locs, rhos = addresses(parameters[:count]), addresses(parameters[count:])
    places = (locs, rhos, integers(sizes[:count]), count, prior.loc, prior.std, slopes.data_ptr(), of_rho.data_ptr())
    return first.new_tensor(run(*places)), slopes


class _KL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, family: Family, prior: Prior, *parameters: Tensor) -> Tensor:
        ctx.laws = family, prior
        if isinstance(family, Normal) and (found := _compiled_normal(prior, parameters)) is not None:
            total, slopes = found
            ctx.save_for_backward(*parameters, slopes)
            return total
        slopes = _flatten_dense_tensors(parameters)
        if slopes.dtype in (torch.float16, torch.bfloat16):  # too few digits for a KL
            slopes = slopes.float()
        loc, rho = slopes.chunk(2)
        buffer = torch.empty_like(rho)
        scale = scale_and_slope(rho, buffer)
        total = CLOSED_FORMS[type(family)](loc, scale, prior.loc, prior.std, buffer)
        rho.mul_(scale)
        ctx.save_for_backward(*parameters, slopes)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *parameters, slopes = ctx.saved_tensors
        if autograd_wanted(grad):
            return gradients_by_autograd(_plain, [*ctx.laws, *parameters], [grad])
        return None, None, *_unflatten_dense_tensors((slopes * grad).to(parameters[0].dtype), parameters)
