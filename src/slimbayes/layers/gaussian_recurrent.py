"""LSTM, GRU and RNN with Gaussian kernels: one draw for a whole sequence."""

from collections.abc import Iterator

from torch import Tensor, nn

from slimbayes.layers._gaussian_kernels import GaussianKernels
from slimbayes.layers.recurrence import GRUStep, Kernel, LSTMStep, Recurrence, RNNStep

__all__ = ["GaussianGRU", "GaussianLSTM", "GaussianRNN"]


class _GaussianRecurrent(GaussianKernels, Recurrence):
    """What the three recurrent layers share: a posterior for each kernel, the LSTM's projection included."""

    def kernel_names(self) -> Iterator[str]:
        """Yield torch's names of all weights and biases, in the order of its fused kernels."""
        for names in self._all_weights:
            yield from names

    def common_weights(self) -> list[Tensor] | None:
        """Return the weights for torch's fused kernel, if all rows have the same ones."""
        if not self.coherent:
            return None
        values = [self.values(name) for name in self.kernel_names()]
        return [value[0] for value in values] if all(value.shape[0] == 1 for value in values) else None

    def kernel(self, name: str, suffix: str, rows: int) -> Kernel:
        """Return one kernel with the weights, or the perturbation and signs, of this pass."""
        bias = f"bias_{name}_{suffix}" if self.bias and name != "hr" else None
        apply = self.dense_map(f"weight_{name}_{suffix}", bias, rows)
        return lambda x: apply(x, x.dim() - 2)


class GaussianLSTM(LSTMStep, _GaussianRecurrent, nn.LSTM):
    """``nn.LSTM`` whose kernels are Gaussian.

    Shape:
        - Input: ``(time, rows, input_size)`` (or batch first, or packed). Output: as ``nn.LSTM``.

    Example:
        >>> import torch
        >>> output, (h, c) = GaussianLSTM(4, 6, num_layers=2, batch_first=True, k=2)(torch.randn(12, 5, 4))
        >>> output.shape, h.shape
        (torch.Size([12, 5, 6]), torch.Size([2, 12, 6]))
    """


class GaussianGRU(GRUStep, _GaussianRecurrent, nn.GRU):
    """``nn.GRU`` whose kernels are Gaussian.

    Shape:
        - Input: ``(time, rows, input_size)`` (or batch first, or packed). Output: as ``nn.GRU``.

    Example:
        >>> import torch
        >>> output, h = GaussianGRU(4, 6, estimator="flipout")(torch.randn(5, 12, 4))
        >>> output.shape, h.shape
        (torch.Size([5, 12, 6]), torch.Size([1, 12, 6]))
    """


class GaussianRNN(RNNStep, _GaussianRecurrent, nn.RNN):
    """``nn.RNN`` (tanh or relu) whose kernels are Gaussian.

    Shape:
        - Input: ``(time, rows, input_size)`` (or batch first, or packed). Output: as ``nn.RNN``.

    Example:
        >>> import torch
        >>> output, h = GaussianRNN(4, 6, nonlinearity="relu")(torch.randn(5, 12, 4))
        >>> output.shape
        torch.Size([5, 12, 6])
    """
