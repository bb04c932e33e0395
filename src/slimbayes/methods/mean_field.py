"""Gaussian mean-field variational inference (Blundell et al. 2015; section 2.1 of the k-tied paper)."""

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from slimbayes.conversion import Selector, checked_selector, convert, matches, register_converter
from slimbayes.layers import conv, embedding, gaussian_attention, gaussian_recurrent, linear
from slimbayes.layers.base import BayesianLayer, computing_hook, in_few_bits
from slimbayes.layers.foreign import FOREIGN, foreign_converter
from slimbayes.layers.gaussian import GaussianOptions
from slimbayes.layers.gaussian_layer import Gaussian
from slimbayes.methods.registry import register_method
from slimbayes.model import BayesianModel

__all__ = ["GaussianSettings", "mean_field"]


@dataclass
class GaussianSettings:
    """What converters are given.

    Attributes:
        options: The posteriors' description.
        memo: Posteriors made so far, so that tied weights share one.
    """

    options: GaussianOptions
    memo: dict[int, Any] = field(default_factory=dict)


@register_method(
    title="mean-field",
    for_trained={"prior": "tied_mean", "prior_std": 0.02},
    for_adapters={"prior": "tied_mean", "prior_std": "initial"},
)
def mean_field(
    net: nn.Module,
    prior_std: float | str = 0.3,
    estimator: str = "reparameterization",
    *,
    prior: str = "normal",
    init: str | float = "network",
    init_std: float = 0.01,
    init_jitter: float = 0.1,
    max_std: float | None = None,
    bayesian_bias: bool = True,
    sample_per: str = "draw",
    noise: str | None = None,
    include: Selector = None,
    exclude: Selector = None,
    freeze_base: bool = False,
    batch_dim: int = 0,
    trained: bool = False,
    train: Selector = None,
) -> BayesianModel:
    """Give every weight of a network a Gaussian posterior of its own: q(W) = N(mean, sigma^2) (Eq. 5).

    The network is copied; its weights are the means. The model has one member, and twice the parameters.

    Args:
        net: Any network.
        prior_std: Scale of the prior N(0, prior_std^2); the paper chooses 0.2 or 0.3. ``"initial"`` for
            ``init_std``: with ``prior="tied_mean"`` the KL begins at 0. Both are defaults with ``freeze_base=True``.
        estimator: ``"reparameterization"``: one weight for each draw, shared by the batch (the paper's).
            ``"local"``: noise on the outputs of dense layers, for each row; Flipout elsewhere. ``"flipout"``: one
            weight for each draw, with random signs for each row. The last two have less gradient noise.
        prior: ``"normal"``; ``"he"``, N(0, 2 / fan-in) for weights (Eq. 9) and N(0, prior_std^2) for biases and
            embeddings; ``"tied_mean"``, N(posterior mean, prior_std^2).
        init: Means: ``"network"`` keeps the weights, ``"he"`` draws them from N(0, 2 / fan-in) with zero biases, a
            number from N(0, init^2).
        init_std: Initial standard deviation of the weights, N(0.01, 0.001) in appendix D.2.
        init_jitter: Its relative spread.
        max_std: Upper bound of the standard deviations; 0.2 in the paper's ResNet.
        bayesian_bias: Give biases a posterior too; otherwise they are point estimates.
        sample_per: Draw weights (of Flipout: their perturbation) for each ``"draw"``, or once for a whole ``"batch"``
            with all its draws.
        noise: ``"example"`` or ``"shared"``; None for ``"shared"`` with plain reparameterisation, so that a draw is one
            function, else ``"example"``.
        include: Layers to convert: name pattern, class, predicate on (name, module), or a list of them.
        exclude: Layers to leave.
        freeze_base: Train the standard deviations alone; everything of the given network stays as it is.
        train: With ``freeze_base``: modules of the network that are trained, and saved, all the same, such as a new
            head; chosen as by ``include``.
        batch_dim: Axis of the batch in inputs and outputs of two or more dimensions.
        trained: The network is trained already: options that are not given have values that suit it,
            ``prior="tied_mean"``, ``prior_std=0.02``.

    Returns:
        A ``BayesianModel`` whose output has the draws on the first axis.

    Example:
        >>> import torch
        >>> model = mean_field(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), estimator="flipout")
        >>> model(torch.randn(5, 8), samples=6).shape
        torch.Size([6, 5, 3])
    """
    options = GaussianOptions(
        estimator=estimator,
        prior=prior,
        prior_std=prior_std,
        init=init,
        init_std=init_std,
        init_jitter=init_jitter,
        max_std=max_std,
        bayesian_bias=bayesian_bias,
        sample_per=sample_per,
    )
    return gaussian_model(net, options, noise, include, exclude, freeze_base, batch_dim, train=train)


def gaussian_model(
    net: nn.Module,
    options: GaussianOptions,
    noise: str | None,
    include: Selector,
    exclude: Selector,
    freeze_base: bool,
    batch_dim: int,
    untied: Selector = None,
    train: Selector = None,
) -> BayesianModel:
    """Convert a network to Gaussian weights, k-tied ones if ``options.k`` is given, but for ``untied`` layers."""
    if not isinstance(net, nn.Module):
        raise TypeError(f"Expected argument `net` to be a torch.nn.Module, but got {type(net).__name__}.")
    if freeze_base and options.init != "network":
        raise ValueError(
            f"Expected argument `init` to be 'network' with freeze_base=True, but got {options.init!r}: a frozen base "
            "is not saved, and new means could not be made again."
        )
    if noise == "shared" and options.sample_per == "batch":
        raise ValueError(
            "Expected argument `noise` to be 'example' or None with sample_per='batch', but got 'shared', which has "
            "a weight for each draw. Leave one of them out."
        )
    if noise is None:
        plain = options.estimator == "reparameterization" and options.sample_per == "draw"
        noise = "shared" if plain else "example"
    settings = GaussianSettings(options)
    untied = None if untied is None else checked_selector("untied", untied, net)
    left_untied: list[str] = []
    uses = Counter(id(module) for _, module in net.named_modules(remove_duplicate=False))
    in_several = {name for name, module in net.named_modules() if uses[id(module)] > 1}

    def settings_for(name: str, module: nn.Module) -> GaussianSettings:
        own = options
        if matches(untied, name, module):
            left_untied.append(name)
            own = replace(own, k=None)
        if own.estimator == "local" and name in in_several:
            own = replace(own, estimator="flipout")  # its weight meets each row more than once
        return GaussianSettings(own, settings.memo)

    conversion = convert(net, "mean_field", settings, include, exclude, settings_for=settings_for, unable=_unable)
    described = asdict(options)
    k = described.pop("k")
    if k is not None:
        described.update(k=k, untied=left_untied)
    described.update(noise=noise, freeze_base=freeze_base, train=train, batch_dim=batch_dim)
    return BayesianModel(conversion, "mean_field" if k is None else "k_tied", described)


def _unable(module: nn.Module) -> str:
    """Return why a module can have no Gaussian weights, or ``""``."""
    if computing_hook(module) is not None:
        return (
            "its weight is computed by a hook before each pass, and a KL needs it at any time; use "
            "torch.nn.utils.parametrizations instead, or torch.nn.utils.remove_weight_norm or remove_spectral_norm"
        )
    if not parametrize.is_parametrized(module) and in_few_bits(getattr(module, "weight", None)):
        kind = type(module.weight).__name__
        return f"its weight is a {kind}, in fewer bits than a mean needs; sb.rank1 puts factors around it"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return f"max_norm={module.max_norm} rewrites its table in every pass; build it without"
    return ""


def _adopt(cls: type[BayesianLayer]) -> Any:
    return lambda layer, settings: cls.adopt(layer, settings.options, settings.memo)


for plain, gaussian in {
    nn.Linear: linear.GaussianLinear,
    nn.Conv1d: conv.GaussianConv1d,
    nn.Conv2d: conv.GaussianConv2d,
    nn.Conv3d: conv.GaussianConv3d,
    nn.ConvTranspose1d: conv.GaussianConvTranspose1d,
    nn.ConvTranspose2d: conv.GaussianConvTranspose2d,
    nn.ConvTranspose3d: conv.GaussianConvTranspose3d,
    nn.LSTM: gaussian_recurrent.GaussianLSTM,
    nn.GRU: gaussian_recurrent.GaussianGRU,
    nn.RNN: gaussian_recurrent.GaussianRNN,
    nn.MultiheadAttention: gaussian_attention.GaussianMultiheadAttention,
    nn.Embedding: embedding.GaussianEmbedding,
}.items():
    register_converter(plain, _adopt(gaussian), method="mean_field")  # type: ignore[type-abstract]

for library_class in FOREIGN:
    register_converter(library_class, foreign_converter(library_class, Gaussian), method="mean_field")
