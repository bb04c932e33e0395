"""Square roots of a covariance: maps R with R R^T = Sigma, which turn standard normal noise into a Gaussian's."""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from slimbayes.layers.scale import in_full_precision


class CovarianceRoot(nn.Module):
    """The spread of a dense layer's weight and bias together: the vector ``[W row by row, b]`` of P numbers.

    Args:
        outputs: Outputs of the layer.
        inputs: Inputs of the layer.
        bias: Whether it has a bias.
    """

    def __init__(self, outputs: int, inputs: int, bias: bool) -> None:
        super().__init__()
        self.outputs, self.inputs, self.bias = outputs, inputs, bias

    @property
    def size(self) -> int:
        """P."""
        return self.outputs * (self.inputs + self.bias)

    @abstractmethod
    def forward(self, noise: Tensor) -> Tensor:
        """Return R times each row of ``(draws, P)``."""

    @abstractmethod
    def variances(self) -> Tensor:
        """Return the diagonal of Sigma, ``(P,)``."""

    @abstractmethod
    def log_determinant(self) -> Tensor:
        """Return log det Sigma."""


class FullRoot(CovarianceRoot):
    """The Cholesky factor of any covariance: P^2 numbers.

    Example:
        >>> FullRoot(3, 4, bias=True)(torch.randn(6, 15)).shape
        torch.Size([6, 15])
    """

    cholesky: Tensor

    def __init__(self, outputs: int, inputs: int, bias: bool) -> None:
        super().__init__(outputs, inputs, bias)
        self.register_buffer("cholesky", torch.eye(self.size))

    def forward(self, noise: Tensor) -> Tensor:
        return noise @ self.cholesky.T

    def variances(self) -> Tensor:
        return in_full_precision(self.cholesky).square().sum(1)

    def log_determinant(self) -> Tensor:
        return 2 * in_full_precision(self.cholesky.diagonal()).log().sum()


class DiagonalRoot(CovarianceRoot):
    """Standard deviations of independent weights: P numbers.

    Example:
        >>> DiagonalRoot(3, 4, bias=False)(torch.randn(6, 12)).shape
        torch.Size([6, 12])
    """

    std: Tensor

    def __init__(self, outputs: int, inputs: int, bias: bool) -> None:
        super().__init__(outputs, inputs, bias)
        self.register_buffer("std", torch.ones(self.size))

    def forward(self, noise: Tensor) -> Tensor:
        return noise * self.std

    def variances(self) -> Tensor:
        return in_full_precision(self.std).square()

    def log_determinant(self) -> Tensor:
        return 2 * in_full_precision(self.std).log().sum()


class KroneckerRoot(CovarianceRoot):
    r"""A precision :math:`B \otimes A + \delta I` by the eigenvectors of its factors, the bias apart.

    .. math::
        W = M + Q_B\, (S \circ E)\, Q_A^\top, \qquad S_{oi} = (\lambda_o \mu_i + \delta)^{-1/2}

    with eigenvalues :math:`\lambda` of B and :math:`\mu` of A: ``out^2 + in^2 + out * in`` numbers.

    Example:
        >>> KroneckerRoot(3, 4, bias=True)(torch.randn(6, 15)).shape
        torch.Size([6, 15])
    """

    output_basis: Tensor
    input_basis: Tensor
    std: Tensor
    bias_basis: Tensor
    bias_std: Tensor

    def __init__(self, outputs: int, inputs: int, bias: bool) -> None:
        super().__init__(outputs, inputs, bias)
        self.register_buffer("output_basis", torch.eye(outputs))
        self.register_buffer("input_basis", torch.eye(inputs))
        self.register_buffer("std", torch.ones(outputs, inputs))
        self.register_buffer("bias_basis", torch.eye(outputs if bias else 0))
        self.register_buffer("bias_std", torch.ones(outputs if bias else 0))

    def forward(self, noise: Tensor) -> Tensor:
        weight, bias = noise.split([self.outputs * self.inputs, noise.shape[1] - self.outputs * self.inputs], 1)
        weight = self.output_basis @ (self.std * weight.unflatten(1, self.std.shape)) @ self.input_basis.T
        return torch.cat([weight.flatten(1), (self.bias_std * bias) @ self.bias_basis.T], 1)

    def variances(self) -> Tensor:
        parts = self.output_basis, self.std, self.input_basis, self.bias_basis, self.bias_std
        outputs, std, inputs, basis, bias = (in_full_precision(part).square() for part in parts)
        return torch.cat([(outputs @ std @ inputs.T).flatten(), basis @ bias])

    def log_determinant(self) -> Tensor:
        return 2 * (in_full_precision(self.std).log().sum() + in_full_precision(self.bias_std).log().sum())


#: By laplace-torch's names of the structures.
ROOTS: dict[str, type[CovarianceRoot]] = {"full": FullRoot, "diag": DiagonalRoot, "kron": KroneckerRoot}
