"""Predictions that are sharper or softer by one number."""

from dataclasses import replace

import torch
from torch import Tensor

from slimbayes.families import SCALE_EPSILON
from slimbayes.likelihoods import Bernoulli, Categorical, Gaussian
from slimbayes.prediction import Prediction

__all__ = ["pooled", "scaled"]


def scaled(prediction: Prediction, temperature: float) -> Prediction:
    r"""Divide each draw's logits by T; stretch a Gaussian mixture by T about its mean.

    Stretched, :math:`p_T(y) = \frac1T\, p(m + (y - m) / T)` with :math:`m` the mixture's mean, which stays; the
    predictive standard deviation and each of its two parts are T times as large.

    Example:
        >>> p = Prediction(torch.tensor([[[1.0]], [[3.0]]]), Gaussian(noise=0.5))
        >>> scaled(p, 2.0).mean, scaled(p, 2.0).std / p.std
        (tensor([[2.]]), tensor([[2.]]))
    """
    reading = prediction.likelihood
    if not isinstance(reading, Gaussian):
        return replace(prediction, draws=prediction.outputs / temperature)
    mean, std = prediction.moments
    centre = mean.mean(0, keepdim=True)
    mean, std = centre + temperature * (mean - centre), temperature * std
    if reading.noise == "predicted":
        return replace(prediction, draws=torch.cat([mean, _rho(std)], -1))
    return replace(prediction, draws=mean, likelihood=Gaussian(noise=std.flatten()[0].item()))


def _rho(std: Tensor) -> Tensor:
    softplus = (std - SCALE_EPSILON).clamp_min(torch.finfo(std.dtype).tiny)
    return softplus + (-torch.expm1(-softplus)).log()


def pooled(prediction: Prediction) -> Prediction:
    """Return one draw whose class probabilities are those of the mixture.

    Example:
        >>> p = Prediction(torch.randn(4, 5, 3), members=4)
        >>> torch.allclose(pooled(p).probs, p.probs), len(pooled(p).draws)
        (True, 1)
    """
    log_probs = prediction.class_log_probs
    if isinstance(prediction.likelihood, Bernoulli):
        no, yes = log_probs.unbind(-1)
        logits = (yes - no).reshape(1, *prediction.outputs.shape[1:])
    else:
        reading = prediction.likelihood
        logits = log_probs.unsqueeze(0).movedim(-1, reading.class_dim if isinstance(reading, Categorical) else -1)
    return replace(prediction, draws=logits, members=1)
