"""Rank-1 Bayesian neural nets (Dusenberry et al. 2020): W point-estimated, a mixture posterior over r and s."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from slimbayes._checks import check_choice, check_number
from slimbayes.conversion import Selector, convert, register_converter
from slimbayes.families import Cauchy, Family, get_family
from slimbayes.layers import attention, conv, linear, recurrent
from slimbayes.layers.base import BayesianLayer
from slimbayes.layers.embedding import GaussianEmbedding
from slimbayes.layers.foreign import FEW_BITS, FOREIGN, foreign_converter
from slimbayes.layers.gaussian import GaussianOptions
from slimbayes.layers.norm import NORMS, MemberNorm
from slimbayes.layers.rank1 import FactorOptions, Rank1
from slimbayes.methods.registry import register_method
from slimbayes.model import BayesianModel

__all__ = ["Rank1Settings", "rank1"]


@dataclass
class Rank1Settings:
    """What converters are given.

    Attributes:
        options: The factors' description.
        member_norm: Give each member its own norm layers.
        embedding: ``"point"`` or ``"mean_field"``.
        embedding_prior_std: Scale of the prior of mean-field embeddings.
        memo: Biases and tables made so far, so that tied ones stay tied.
    """

    options: FactorOptions
    member_norm: bool = False
    embedding: str = "point"
    embedding_prior_std: float = 1.0
    memo: dict[int, Any] = field(default_factory=dict)

    def veto(self, module: nn.Module) -> str:
        """Return why a layer that could be converted is left by default, or ``""``."""
        if isinstance(module, NORMS) and not self.member_norm:
            return "norm layers are shared by the members; member_norm=True gives each its own"
        if isinstance(module, nn.Embedding) and self.embedding == "point":
            return "embeddings are point estimates; embedding='mean_field' gives them a posterior"
        return ""


def _initial_rate(given: Mapping[str, Any]) -> float:
    """Return the dropout rate that a trained network bears: a Cauchy's outliers ask for a hundredth of the scale."""
    return 1e-6 if isinstance(get_family(given.get("family", "normal")), Cauchy) else 0.01


@register_method(
    title="rank-1 {family}",
    for_trained={"init": "ones", "prior_std": 0.15, "dropout_rate": _initial_rate},
    for_adapters={"prior_std": "initial"},
)
def rank1(
    net: nn.Module,
    members: int = 4,
    family: str | dict[str, Any] | Family = "normal",
    prior_mean: float | None = None,
    prior_std: float | str = 0.1,
    prior_family: str | dict[str, Any] | Family | None = None,
    factors: str = "both",
    rank: int = 1,
    init: str = "normal",
    init_spread: float = 0.5,
    dropout_rate: float = 1e-3,
    noise: str = "example",
    train_on: str = "tile",
    include: Selector = None,
    exclude: Selector = None,
    freeze_base: bool = False,
    member_bias: bool = True,
    member_norm: bool = False,
    clip: float | None = None,
    *,
    prior_scale: str = "fixed",
    scale_prior: str | None = None,
    perturbation: str = "multiplicative",
    embedding: str = "point",
    embedding_prior_std: float = 1.0,
    batch_dim: int = 0,
    trained: bool = False,
    train: Selector = None,
) -> BayesianModel:
    """Make a rank-1 Bayesian neural net out of a network: every weight becomes W ∘ r s^T (Eq. 1).

    The network is copied; its weights are kept as W. Of one that is trained already say ``trained=True``, so that every
    member starts as the network itself.

    Args:
        net: Any network.
        members: Mixture components K. The batch is repeated K times, or dealt out, see ``train_on``.
        family: Posterior of the factors, see ``FactorOptions``.
        prior_mean: Location of the factors' prior; None for the neutral value, 1 (0 if additive).
        prior_std: Scale of the factors' prior; ``"initial"``, the default with ``freeze_base=True``, for the one that
            they start with, so that the KL is small at the start, and grows with what the data teach.
        prior_family: Distribution of the prior; None for that of the posterior.
        factors: Put them on each layer's ``"input"``, ``"output"`` or ``"both"``.
        rank: Number of rank-1 terms in each layer's perturbation.
        init: Initial locations, ``"normal"``, ``"sign"`` or ``"ones"``.
        init_spread: Their standard deviation with ``"normal"``.
        dropout_rate: Initial scale of the posterior, sqrt(p / (1 - p)).
        noise: ``"example"``: each row its own draw; where that takes many numbers, a few rows share the magnitudes of
            their noise and have signs of their own. ``"independent"``: nothing is shared. ``"shared"``: one draw per
            member and sample.
        train_on: In training, ``"tile"``: every member sees the whole batch (the papers' way).
            ``"split"``: the batch is dealt out among the members, at the cost of one network; the output
            then has one draw per sample, each example answered by one member.
        include: Layers to convert: name pattern, class, predicate on (name, module), or a list of them.
        exclude: Layers to leave.
        freeze_base: Train the factors alone; everything of the given network stays as it is.
        train: With ``freeze_base``: modules of the network that are trained, and saved, all the same, such as a new
            head; chosen as by ``include``.
        member_bias: Each member has its own biases.
        member_norm: Each member has its own norm layers.
        clip: Clamp draws to [-clip, clip].
        prior_scale: ``"fixed"`` or ``"trainable"``.
        scale_prior: None, ``"half_cauchy"`` or ``"inverse_gamma"``: a distribution of the prior's scale.
        perturbation: ``"multiplicative"`` or ``"additive"``.
        embedding: ``"point"`` leaves embeddings alone; ``"mean_field"`` gives them a normal posterior that
            the members share.
        embedding_prior_std: Scale of that posterior's prior N(0, .).
        batch_dim: Axis of the batch in inputs and outputs of two or more dimensions; 1 for networks that
            take sequences first.
        trained: The network is trained already: options that are not given have values that suit it,
            ``init="ones"``, ``prior_std=0.15``, ``dropout_rate=0.01``; 1e-6 of Cauchy factors, whose outliers at
            0.01 leave nothing of a network.

    Returns:
        A ``BayesianModel`` whose output has the draws on the first axis.

    Example:
        >>> import torch
        >>> model = rank1(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), members=4)
        >>> model(torch.randn(5, 8)).shape
        torch.Size([4, 5, 3])
        >>> model(torch.randn(5, 8), samples=6).shape
        torch.Size([24, 5, 3])
    """
    check_choice("embedding", embedding, ("point", "mean_field"))
    check_number("embedding_prior_std", embedding_prior_std, low=0.0)
    options = FactorOptions(
        members=members,
        family=family,
        prior_mean=prior_mean,
        prior_std=prior_std,
        prior_family=prior_family,
        prior_scale=prior_scale,
        scale_prior=scale_prior,
        factors=factors,
        rank=rank,
        init=init,
        init_spread=init_spread,
        dropout_rate=dropout_rate,
        perturbation=perturbation,
        member_bias=member_bias,
        clip=clip,
    )
    settings = Rank1Settings(options, member_norm, embedding, embedding_prior_std)
    conversion = convert(net, "rank1", settings, include, exclude, settings.veto)
    return BayesianModel(
        conversion,
        method="rank1",
        options={
            **options.to_json(),
            "noise": noise,
            "train_on": train_on,
            "freeze_base": freeze_base,
            "train": train,
            "member_norm": member_norm,
            "embedding": embedding,
            "embedding_prior_std": embedding_prior_std,
            "batch_dim": batch_dim,
        },
    )


def _adopt(cls: type[BayesianLayer]) -> Any:
    return lambda layer, settings: cls.adopt(layer, settings.options, settings.memo)


for plain, bayesian in {
    nn.Linear: linear.Rank1Linear,
    nn.Conv1d: conv.Rank1Conv1d,
    nn.Conv2d: conv.Rank1Conv2d,
    nn.Conv3d: conv.Rank1Conv3d,
    nn.ConvTranspose1d: conv.Rank1ConvTranspose1d,
    nn.ConvTranspose2d: conv.Rank1ConvTranspose2d,
    nn.ConvTranspose3d: conv.Rank1ConvTranspose3d,
    nn.LSTM: recurrent.Rank1LSTM,
    nn.GRU: recurrent.Rank1GRU,
    nn.RNN: recurrent.Rank1RNN,
    nn.MultiheadAttention: attention.Rank1MultiheadAttention,
}.items():
    register_converter(plain, _adopt(bayesian))  # type: ignore[type-abstract]

for library_class in (*FOREIGN, *FEW_BITS):
    register_converter(library_class, foreign_converter(library_class, Rank1))

for norm in NORMS:
    register_converter(norm, lambda layer, settings: MemberNorm(layer, settings.options.members))


@register_converter(nn.Embedding)
def _embedding(layer: nn.Module, settings: Rank1Settings) -> nn.Module:
    # Each row draws its own table, like its factors; the reference starts at softplus(-3) = 0.0486.
    options = GaussianOptions(estimator="flipout", prior_std=settings.embedding_prior_std, init_std=0.0486)
    return GaussianEmbedding.adopt(layer, options, settings.memo, members=settings.options.members)
