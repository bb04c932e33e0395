"""A network's own dropout, kept on for prediction."""

import threading
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from slimbayes.layers.base import BayesianLayer, Pick, become_plain
from slimbayes.layers.dropout_mask import ElementMask, refuse_to_fold

#: Modules that drop channels, and the dimensions below which torch takes the first for the channels'.
_CHANNEL_WISE: dict[type[nn.Module], int] = {nn.Dropout1d: 3, nn.Dropout2d: 0, nn.Dropout3d: 5}


#: One thread at a time: torch's global generator is there for all, and so is the mode of a module.
_alone = threading.RLock()


class _Own(BayesianLayer, nn.Module):
    """What both kinds share: a mask that is drawn, and the way back."""

    mask: ElementMask

    def set_up(self, rate: float) -> None:
        self.mask = ElementMask(rate)

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Become the plain module again, which is how it was at its location."""
        refuse_to_fold(pick(self.mask))
        become_plain(self, ("mask",), ())
        return self


class OwnDropout(_Own):
    """``nn.Dropout`` or ``nn.Dropout1d`` to ``3d`` whose masks are those of the draw, in any mode.

    As with torch's, each call has a mask of its own. The result is returned, even with ``inplace``: a prediction is
    not to change what it is given.

    Shape:
        - Input and output: any.

    Example:
        >>> layer = OwnDropout.adopt(nn.Dropout(0.5), 0.5).eval()
        >>> sorted(layer(torch.ones(100, 3)).unique().tolist())
        [0.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop values, or channels, as the torch class does in training."""
        self.enter()
        full = next((full for kind, full in _CHANNEL_WISE.items() if issubclass(self.plain_class, kind)), None)
        axis = 0 if full is not None or input.dim() < 3 else self.rows_axis(input)
        shape = None
        if full is not None:
            leading = 2 if input.dim() >= full else 1
            shape = (*input.shape[:leading], *[1] * (input.dim() - leading))
        if self.mask.name in (self.sampling.held or {}):
            self.rows_of(input, axis)
        return self.mask.masked(input, axis, shape, anew=True)


class _InsideKernel(_Own):
    """A module whose dropout torch applies inside its kernel, from its global generator: run as in training."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the torch class with its dropout on, reproducibly under the model's generator."""
        sampling = self.enter()
        if (sampling.samples and sampling.noise == "shared") or self.mask.name in (sampling.held or {}):
            raise ValueError(
                f"Layer {self.label} is a {self.plain_class.__name__} with dropout inside, whose masks torch draws "
                "for each example and nobody can hold, as noise='shared', draw= and check() need. Exclude the layer, "
                "or convert with place='before'; only passes with noise='example' run."
            )
        with nullcontext() if torch.compiler.is_compiling() else _alone:
            mode, self.training = self.training, sampling.samples > 0
            try:
                if sampling.generator is None or sampling.samples == 0:
                    return super().forward(*args, **kwargs)
                device = sampling.generator.device
                devices = [] if device.type == "cpu" else [device]
                with torch.random.fork_rng(devices, device_type=device.type):
                    # torch.manual_seed would seed the accelerators too, whose states are not put back.
                    source: Any = torch.default_generator if device.type == "cpu" else torch
                    source.manual_seed(int(self.mask.hold(1, 1, self.mask.source(self.mask.name))))
                    return super().forward(*args, **kwargs)
            finally:
                self.training = mode


def _kept_on(plain: type[nn.Module]) -> type[_Own]:
    doc = f"``nn.{plain.__name__}`` whose own dropout stays on for prediction."
    cls = type(f"Own{plain.__name__}", (_InsideKernel, plain), {"__module__": __name__, "__doc__": doc})
    globals()[cls.__name__] = cls  # where pickle looks for it
    return cls


#: The modules with dropout, and what each becomes.
_KINDS: dict[type[nn.Module], type[_Own]] = {
    **dict.fromkeys((nn.Dropout, *_CHANNEL_WISE), OwnDropout),
    **{
        plain: _kept_on(plain)
        for plain in (nn.AlphaDropout, nn.FeatureAlphaDropout, nn.LSTM, nn.GRU, nn.RNN, nn.MultiheadAttention)
    },
}


def own_rate(module: nn.Module) -> float | None:
    """Return the dropout rate of a module that has dropout of its own, or None.

    Example:
        >>> own_rate(nn.Dropout(0.2)), own_rate(nn.LSTM(3, 4, 2, dropout=0.3)), own_rate(nn.Linear(3, 4))
        (0.2, 0.3, None)
    """
    plain = next((kind for kind in _KINDS if isinstance(module, kind)), None)
    if plain is None or type(module).forward is not plain.forward:
        return None
    rate = float(cast(Any, module).p if hasattr(module, "p") else cast(Any, module).dropout)
    alone = isinstance(module, nn.RNNBase) and module.num_layers == 1  # torch's is between the layers
    return rate if rate > 0 and not alone else None


def keep_on(module: nn.Module) -> nn.Module:
    """Turn a module with dropout of its own, in place, into one that drops in prediction too."""
    rate = own_rate(module)
    assert rate is not None
    kind = next(cls for plain, cls in _KINDS.items() if isinstance(module, plain))
    return kind.adopt(module, rate)
