"""What layers with Gaussian weights share: three ways to draw y = op(x, W) + b with W ~ N(mean, sigma^2)."""

from abc import abstractmethod
from typing import Any

from torch import Tensor, nn

from slimbayes.layers.base import (
    BayesianLayer,
    Pick,
    along_rows,
    become_plain,
    draw_groups,
    plain_base,
    settle_weight,
)
from slimbayes.layers.gaussian import GaussianOptions, GaussianWeight, posterior_of, start_means

__all__ = ["Gaussian", "deal_rows"]


class Gaussian(BayesianLayer, nn.Module):
    r"""Mixin for layers with one weight and one bias. A subclass names its linear map.

    ======================  =============================================================================
    reparameterisation      :math:`y = op(x, \mu + \sigma \epsilon)`: one weight for each draw (Eq. 6)
    local                   :math:`y = op(x, \mu) + \sqrt{op(x^2, \sigma^2)}\, \epsilon`: noise on outputs, one for
                            each row (Kingma et al. 2015); dense layers on one vector a row
    Flipout                 :math:`y = op(x, \mu) + op(x \circ s, \sigma \epsilon) \circ r`: one weight for each draw,
                            random signs s and r for each row (Wen et al. 2018)
    ======================  =============================================================================

    Where the weight meets a row more than once (convolutions, recurrences, dense layers over positions, tied weights),
    noise on outputs would be independent where it must not be, so ``"local"`` means Flipout there. Every estimator is
    exact: each row is answered by one weight drawn from the posterior; Flipout's weights of different rows are
    uncorrelated, local ones independent.

    To support a layer class of your own, subclass this and your class, implement ``sizes``, ``apply_weight`` and
    ``apply_weights``, and register ``YourClass.adopt`` with ``sb.register_converter(..., method="mean_field")``.

    Attributes:
        weight: The means.
        bias: The means of the bias, or its point estimate, or None.
        weight_posterior: A ``GaussianWeight``: standard deviations, prior, KL.
        bias_posterior: The same for the bias, or None.
    """

    channel_dim: int = -1
    output_dim: int = 0
    weight: Tensor
    bias: Any
    weight_posterior: GaussianWeight
    bias_posterior: GaussianWeight | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        options, plain = GaussianOptions.split(kwargs)
        super().__init__(*args, **plain)
        self.begin(plain_base(type(self)), options)

    def set_up(self, options: GaussianOptions, memo: dict[int, Any] | None = None) -> None:
        """Add the posteriors; weight and bias become their means."""
        memo = {} if memo is None else memo
        self.estimator, self.sample_per = options.estimator, options.sample_per
        groups = getattr(self, "groups", 1)
        self.weight_posterior = posterior_of(self, "weight", options, memo, self.output_dim, groups)
        self.bias_posterior = None
        if self.bias is not None:
            if options.bayesian_bias:
                self.bias_posterior = posterior_of(self, "bias", options, memo)
            else:
                start_means(self, "bias", options)

    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """Return the numbers of input and output channels."""

    @abstractmethod
    def apply_weight(self, x: Tensor, weight: Tensor, *args: Any) -> Tensor:
        """Apply the layer's linear map with one weight, without bias."""

    @abstractmethod
    def apply_weights(self, x: Tensor, weights: Tensor, axis: int, *args: Any) -> Tensor:
        """Apply ``(groups, *weight shape)`` weights, each to its group of consecutive rows on ``axis``."""

    def forward(self, input: Tensor, *args: Any) -> Tensor:
        """Apply the layer to rows whose draws follow each other."""
        sampling = self.enter()
        axis = self.rows_axis(input)
        rows = self.rows_of(input, axis)
        held = self.weight_posterior.held is not None
        if sampling.samples == 0 and not held:
            return self._plus_bias(self.apply_weight(input, self.weight, *args), self.bias, axis)
        draws = sampling.weights(self.sample_per)
        if held or sampling.noise == "shared" or self.estimator == "reparameterization":
            return self._reparameterized(input, draws, axis, *args)
        groups = draw_groups(sampling, 1, rows)
        shared = any(part is not None and part.tied for part in (self.weight_posterior, self.bias_posterior))
        once = not shared and self._meets_rows_once(input, groups)
        local = self.estimator == "local" and once
        self._keep_one_weight_a_row(input, local)
        if local:
            return self._local(input)
        return self._flipout(input, draws, groups, axis, *args)

    def _keep_one_weight_a_row(self, x: Tensor, local: bool) -> None:
        """Raise if the layer is called again in a pass in which it has put, or is to put, noise on its outputs."""
        drawn, name = self.sampling.drawn, self.weight_posterior.name
        if drawn is None:
            return
        if f"{name}/local" in drawn or (local and f"{name}/delta" in drawn):
            raise RuntimeError(
                f"Layer {self.label} was called twice in one forward pass. With estimator='local' its answers would "
                "come from different weights: use estimator='flipout', or exclude the layer."
            )
        if local:
            drawn[f"{name}/local"] = x

    def _meets_rows_once(self, x: Tensor, groups: int) -> bool:
        """Tell whether the weight meets each row in one vector only."""
        return False

    def _local(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _reparameterized(self, x: Tensor, draws: int, axis: int, *args: Any) -> Tensor:
        weights = self.weight_posterior.values(draws)
        deal_rows(self, x.shape[axis], weights.shape[0])
        y = self.apply_weights(x, weights, axis, *args)
        bias = self.bias if self.bias_posterior is None else self.bias_posterior.values(draws)
        return self._plus_bias(y, bias, axis)

    def _flipout(self, x: Tensor, draws: int, groups: int, axis: int, *args: Any) -> Tensor:
        posterior = self.weight_posterior
        delta = posterior.perturbations(draws)
        deal_rows(self, x.shape[axis], delta.shape[0])
        inputs, outputs = self.sizes()
        # Signs belong to the weight's axes: a transposed convolution may share its weight with a convolution.
        first, second = ("s", "r") if self.output_dim == posterior.output_dim else ("r", "s")
        s, r = posterior.signs(first, groups, inputs, x), posterior.signs(second, groups, outputs, x)
        flipped = along_rows(x, s, axis, self.channel_dim, False, self.label)
        noise = self.apply_weights(flipped, delta, axis, *args)
        bias, of_bias = self.bias, self.bias_posterior
        if of_bias is not None and of_bias.tied:  # shared with another layer, whose signs are others
            bias = of_bias.values(draws)
        elif of_bias is not None:
            # The signs of the outputs make the bias's perturbation differ between rows, too.
            noise = along_rows(noise, of_bias.perturbations(draws), axis, self.channel_dim, True, self.label)
        noise = along_rows(noise, r, axis, self.channel_dim, False, self.label)
        return self._plus_bias(self.apply_weight(x, self.weight, *args) + noise, bias, axis)

    def _plus_bias(self, y: Tensor, bias: Tensor | None, axis: int) -> Tensor:
        if bias is None:
            return y
        return along_rows(y, bias if bias.dim() == 2 else bias.unsqueeze(0), axis, self.channel_dim, True, self.label)

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Become the plain layer with the picked weight and bias."""
        settle_weight(self)
        self.weight = self.weight_posterior.fold(pick)
        if self.bias_posterior is not None:
            self.bias = self.bias_posterior.fold(pick)
        become_plain(self, ("weight_posterior", "bias_posterior"), ("estimator", "sample_per"))
        return self


def deal_rows(layer: BayesianLayer, rows: int, draws: int) -> None:
    """Raise unless ``rows`` rows can be dealt to ``draws`` draws."""
    if rows % draws:
        raise ValueError(
            f"Layer {layer.label} got {rows} rows, which cannot be dealt to {draws} draws. Its input does not carry "
            "the model's batch: set the layer's `row_dim`, convert with another `batch_dim`, or exclude it."
        )
