"""The curvature of a likelihood in the weights of a last layer, whole, by its Kronecker factors, or its diagonal."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from slimbayes.likelihoods import Gaussian, Likelihood

__all__ = ["CURVATURES", "Curvature", "DiagonalCurvature", "FullCurvature", "KroneckerCurvature"]


class Curvature(ABC):
    r"""The generalised Gauss-Newton matrix of a dense layer's ``[W row by row, b]`` over the training data.

    .. math::
        H = \frac1T \sum_n J_n^\top \Lambda_n J_n, \qquad J_n^\top \Lambda_n J_n = \Lambda_n \otimes \phi_n \phi_n^\top

    with the layer's inputs :math:`\phi` (for the bias: 1) and the likelihood's curvature in its outputs,
    :math:`\Lambda = \operatorname{diag}(p) - p p^\top` of a softmax and :math:`I / \sigma^2` of a Gaussian.

    Args:
        features: :math:`\phi`, ``(n, in)``.
        outputs: What the layer answers, ``(n, out)``.
        likelihood: How it is read.
        temperature: T.
        bias: Whether the layer has one.
    """

    def __init__(
        self, features: Tensor, outputs: Tensor, likelihood: Likelihood, temperature: float, bias: bool
    ) -> None:
        self.temperature, self.bias = temperature, bias
        if isinstance(likelihood, Gaussian):
            self.diagonal = 1 / likelihood.moments(outputs)[1].square()
            self.crossing = torch.zeros_like(outputs)
        else:
            self.diagonal = self.crossing = outputs.softmax(1)
        self.set_up(features)

    def between(self, c: int, d: int) -> Tensor:
        """Return the entry of each example's Lambda for two outputs, ``(n,)``."""
        crossing = self.crossing[:, c] * self.crossing[:, d]
        return self.diagonal[:, c] - crossing if c == d else -crossing

    @abstractmethod
    def set_up(self, features: Tensor) -> None:
        """Compute what the posterior needs."""

    @abstractmethod
    def eigenvalues(self) -> Tensor:
        """Return the eigenvalues of H, ``(P,)``."""

    @abstractmethod
    def root(self, precision: float) -> dict[str, Tensor]:
        """Return the buffers of the ``CovarianceRoot`` of the inverse of H plus ``precision`` times the identity."""


class FullCurvature(Curvature):
    """All of H, ``(P, P)``."""

    def set_up(self, features: Tensor) -> None:  # noqa: D102
        if self.bias:
            features = torch.cat([features, features.new_ones(len(features), 1)], 1)
        outputs, inputs = self.diagonal.shape[1], features.shape[1]
        whole = features.new_empty(outputs, inputs, outputs, inputs)
        for c in range(outputs):
            for d in range(c + 1):
                block = features.T @ (features * self.between(c, d).unsqueeze(1))
                whole[c, :, d] = whole[d, :, c] = block / self.temperature
        order = torch.arange(outputs * inputs, device=features.device).view(outputs, inputs)
        if self.bias:  # they come last
            order = torch.cat([order[:, :-1].flatten(), order[:, -1]])
        order = order.flatten()
        self.matrix = whole.view(outputs * inputs, -1)[order][:, order]

    def eigenvalues(self) -> Tensor:  # noqa: D102
        return torch.linalg.eigvalsh(self.matrix)

    def root(self, precision: float) -> dict[str, Tensor]:  # noqa: D102
        identity = torch.eye(len(self.matrix)).to(self.matrix)
        # The Cholesky factor of the precision in reverse order is, inverted, that of the covariance.
        reverse = torch.linalg.cholesky((self.matrix + precision * identity).flip(0, 1)).flip(0, 1).T
        return {"cholesky": torch.linalg.solve_triangular(reverse, identity, upper=False)}


class DiagonalCurvature(Curvature):
    """The diagonal of H, ``(P,)``."""

    def set_up(self, features: Tensor) -> None:  # noqa: D102
        own = self.diagonal - self.crossing.square()
        parts = [(own.T @ features.square()).flatten()] + [own.sum(0)] * self.bias
        self.values = torch.cat(parts) / self.temperature

    def eigenvalues(self) -> Tensor:  # noqa: D102
        return self.values

    def root(self, precision: float) -> dict[str, Tensor]:  # noqa: D102
        return {"std": (self.values + precision).rsqrt()}


class KroneckerCurvature(Curvature):
    r"""The product of the sum of Lambda and the mean of phi phi^T, and apart from it the bias's block of H."""

    def set_up(self, features: Tensor) -> None:  # noqa: D102
        outer = (self.diagonal.sum(0).diag() - self.crossing.T @ self.crossing) / self.temperature
        inner = features.T @ features / len(features)
        (self.output_values, self.output_basis), (self.input_values, self.input_basis) = (
            torch.linalg.eigh(matrix) for matrix in (outer, inner)
        )
        self.output_values, self.input_values = self.output_values.clamp_min(0), self.input_values.clamp_min(0)

    def eigenvalues(self) -> Tensor:  # noqa: D102
        products = torch.outer(self.output_values, self.input_values).flatten()
        return torch.cat([products, self.output_values]) if self.bias else products

    def root(self, precision: float) -> dict[str, Tensor]:  # noqa: D102
        nothing = self.output_values.new_zeros(0)
        return {
            "output_basis": self.output_basis,
            "input_basis": self.input_basis,
            "std": (torch.outer(self.output_values, self.input_values) + precision).rsqrt(),
            "bias_basis": self.output_basis if self.bias else nothing.view(0, 0),
            "bias_std": (self.output_values + precision).rsqrt() if self.bias else nothing,
        }


#: By the names of the structures, which are laplace-torch's.
CURVATURES: dict[str, type[Curvature]] = {
    "full": FullCurvature,
    "diag": DiagonalCurvature,
    "kron": KroneckerCurvature,
}
