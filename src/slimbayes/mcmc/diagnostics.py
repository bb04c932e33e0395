"""Do the chains mix? Effective sample size and R-hat, for each element of a parameter."""

from typing import Any

import torch
from torch import Tensor

__all__ = ["effective_sample_size", "r_hat"]

#: Numbers that are worked on at once: bounds the memory of the Fourier transforms.
_BLOCK = 2**22


def effective_sample_size(draws: Any, rank_normalised: bool = True) -> Tensor:
    r"""Return how many independent draws would give as precise a mean, for each element.

    Each chain is split into halves: M chains of n draws each, S = M n. With :math:`W` and
    :math:`\widehat{\mathrm{var}}^+` of ``r_hat`` and the mean over chains :math:`\bar\gamma_t` of the
    autocovariances at lag t (divided by n, by Fourier transform),

    .. math::
        \hat\rho_t = 1 - \frac{W - \bar\gamma_t}{\widehat{\mathrm{var}}^+}, \qquad
        \hat P_k = \hat\rho_{2k} + \hat\rho_{2k+1}, \qquad
        \mathrm{ESS} = S / \hat\tau, \qquad
        \hat\tau = -1 + 2 \sum_{k=0}^{K-1} \min_{j \le k} \hat P_j + \max(0, \hat\rho_{2K})

    where K is the first k with :math:`\hat P_k \le 0`: Geyer's initial monotone sequence (Vehtari et al. 2021,
    section 3.2; Gelman et al., BDA3, Eqs. 11.5 to 11.8). At most :math:`S \log_{10} S` is returned, as Stan does;
    and so it is for fewer than 10 samples, as in ArviZ: from so few no lag can be estimated.

    Args:
        draws: ``(chains, samples, *shape)``, at least 4 samples.
        rank_normalised: Of the ranks' normal scores (bulk ESS, which needs no finite variance; see ``r_hat``).
            False for the ESS of the mean itself: the Monte Carlo error of a mean is std / sqrt(ESS).

    Returns:
        ``shape``, in float64. NaN where the draws are not all finite, or are all one value.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> independent = torch.randn(4, 1000, 2)
        >>> walk = independent.cumsum(1)
        >>> effective_sample_size(independent).round(), effective_sample_size(walk).round()
        (tensor([3895., 3839.], dtype=torch.float64), tensor([5., 5.], dtype=torch.float64))
    """

    def ess(chains: Tensor) -> Tensor:
        return _geyer(_normal_scores(chains) if rank_normalised else chains)

    return _per_element(ess, draws)


def r_hat(draws: Any, rank_normalised: bool = True) -> Tensor:
    r"""Return how much wider the chains are together than each alone, for each element; 1 where they agree.

    Each chain is split into halves: M chains of n draws each. With the mean :math:`W` of the chains' variances and
    the variance :math:`B / n` of their means (Vehtari et al. 2021, section 3.1; BDA3, Eqs. 11.3 and 11.4),

    .. math::
        \widehat{\mathrm{var}}^+ = \frac{n - 1}{n} W + \frac1n B, \qquad
        \hat R = \sqrt{\widehat{\mathrm{var}}^+ / W}

    Rank-normalised (Vehtari et al. 2021, section 4), it is the larger of the :math:`\hat R` of
    :math:`z = \Phi^{-1}((r - 3/8) / (S + 1/4))`, with the rank r among all S draws, and of the same of
    :math:`|\theta - \mathrm{median}|`, which finds chains of one mean and unlike widths. They call for less
    than 1.01.

    Args:
        draws: ``(chains, samples, *shape)``, at least 4 samples. One chain is compared with itself, by its halves.
        rank_normalised: False for the classic split :math:`\hat R`.

    Returns:
        ``shape``, in float64. NaN where the draws are not all finite, or are all one value; infinite where every
        half chain is stuck, at unlike values.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> draws = torch.randn(4, 500, 2)
        >>> draws[0, :, 1] += 1
        >>> r_hat(draws).round(decimals=2)
        tensor([1.0000, 1.1100], dtype=torch.float64)
    """

    def ratio(chains: Tensor) -> Tensor:
        if not rank_normalised:
            return _ratio(chains)
        median = chains.flatten(1).quantile(0.5, dim=1)[:, None, None]
        folded = (chains - median).abs()
        return torch.fmax(_ratio(_normal_scores(chains)), _ratio(_normal_scores(folded)))

    return _per_element(ratio, draws)


def _per_element(statistic: Any, draws: Any) -> Tensor:
    """Return ``statistic``, from (elements, chains, samples) to (elements,), of the half chains of each element."""
    draws = torch.as_tensor(draws)
    if draws.dim() < 2 or draws.shape[0] < 1 or draws.shape[1] < 4:
        raise ValueError(
            f"Expected argument `draws` to be of shape (chains, samples, *shape) with at least 4 samples, but got "
            f"{tuple(draws.shape)}. Keep more samples of each chain."
        )
    if not draws.numel():
        return torch.zeros(draws.shape[2:], dtype=torch.float64, device=draws.device)
    half = draws.shape[1] // 2
    elements = draws.detach().flatten(2) if draws.dim() > 2 else draws.detach()[..., None]
    results = []
    for block in elements.split(max(1, _BLOCK // (draws.shape[0] * draws.shape[1])), dim=2):
        chains = torch.cat([block[:, :half], block[:, -half:]]).permute(2, 0, 1).to(torch.float64)
        flat = chains.flatten(1)
        undefined = ~flat.isfinite().all(1) | (flat == flat[:, :1]).all(1)
        results.append(statistic(chains).masked_fill(undefined, torch.nan))
    return torch.cat(results).reshape(draws.shape[2:])


def _within(chains: Tensor) -> Tensor:
    """Return W; exactly 0 for chains that stand still."""
    return (chains - chains[..., :1]).var(2).mean(1)


def _ratio(chains: Tensor) -> Tensor:
    samples = chains.shape[2]
    between = chains.mean(2).var(1)
    return ((samples - 1) / samples + between / _within(chains)).sqrt()


def _normal_scores(chains: Tensor) -> Tensor:
    """Return the normal scores of the ranks among all chains' draws; ties share their mean rank."""
    flat = chains.flatten(1).contiguous()
    ordered = flat.sort(dim=1).values
    below = torch.searchsorted(ordered, flat)
    up_to = torch.searchsorted(ordered, flat, right=True)
    rank = (below + up_to + 1).to(torch.float64) / 2
    return torch.special.ndtri((rank - 0.375) / (flat.shape[1] + 0.25)).reshape(chains.shape)


def _geyer(chains: Tensor) -> Tensor:
    _, count, samples = chains.shape
    centred = chains - chains.mean(2, keepdim=True)
    power = torch.fft.rfft(centred, n=2 * samples, dim=2).abs().square().mean(1)
    autocovariance = torch.fft.irfft(power, n=2 * samples, dim=1)[:, :samples] / samples

    within = _within(chains)[:, None]
    pooled = within * (samples - 1) / samples + chains.mean(2).var(1)[:, None]
    correlation = 1 - (within - autocovariance) / pooled
    correlation[:, 0] = 1.0

    # Stan reads no lags beyond these: the last ones are means of hardly any products.
    pairs = max(1, (samples - 1) // 2)
    sums = correlation[:, : 2 * pairs].unflatten(1, (pairs, 2)).sum(2)
    positive = (sums > 0).cumprod(1)
    stop = positive.sum(1, keepdim=True).clamp(max=pairs - 1)
    kept = torch.arange(pairs, device=chains.device) < stop
    monotone = sums.cummin(1).values
    after = correlation.gather(1, 2 * stop)[:, 0].clamp(min=0)
    time = -1 + 2 * (monotone * kept).sum(1) + after

    total = torch.tensor(float(count * samples), dtype=torch.float64, device=chains.device)
    return total / time.clamp(min=1 / total.log10().item())
