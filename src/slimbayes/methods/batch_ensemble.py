"""BatchEnsemble (Wen et al. 2020): rank-1 factors that are points, a mixture of Dirac deltas (section 3.3)."""

from typing import Any

from torch import nn

from slimbayes.conversion import Selector
from slimbayes.families import Family
from slimbayes.methods.rank1 import rank1
from slimbayes.methods.registry import register_method
from slimbayes.model import BayesianModel

__all__ = ["batch_ensemble"]


def _rebuild(net: nn.Module, family: str, dropout_rate: float, **options: Any) -> BayesianModel:
    return batch_ensemble(net, **options)


@register_method(
    title="BatchEnsemble",
    rebuild=_rebuild,
    for_trained={"init_spread": 0.1},
)
def batch_ensemble(
    net: nn.Module,
    members: int = 4,
    *,
    factors: str = "both",
    rank: int = 1,
    init: str = "normal",
    init_spread: float = 0.5,
    train_on: str = "tile",
    include: Selector = None,
    exclude: Selector = None,
    freeze_base: bool = False,
    member_bias: bool = True,
    member_norm: bool = False,
    clip: float | None = None,
    family: str = "delta",
    prior_family: str | dict[str, Any] | Family | None = None,
    prior_mean: float | None = None,
    prior_std: float = 0.1,
    prior_scale: str = "fixed",
    scale_prior: str | None = None,
    perturbation: str = "multiplicative",
    embedding: str = "point",
    embedding_prior_std: float = 1.0,
    noise: str = "example",
    batch_dim: int = 0,
    trained: bool = False,
    train: Selector = None,
) -> BayesianModel:
    r"""Make a BatchEnsemble out of a network: ``sb.rank1`` with the delta family, and so without a KL.

    Member k answers, with its own "fast weights" s and r of R terms and its own bias b (Eq. 1; rank R as in edward2),

    .. math::
        y_k = \sum_{j=1}^R W (x \circ s_{kj}) \circ r_{kj} + b_k.

    ``model.param_groups(weight_decay=...)`` leaves the fast weights without weight decay, as the reference does; W,
    biases and norms have it. ``factor_lr`` is the reference's smaller learning rate of fast weights.

    Args:
        net: Any network; it is copied and its weights are kept.
        members: Ensemble members K.
        factors: Put them on each layer's ``"input"``, ``"output"`` or ``"both"``.
        rank: Number R of rank-1 terms.
        init: Where the factors start: ``"normal"``, N(1, init_spread^2); ``"sign"``, random +1 and -1, as the paper
            prefers; ``"ones"``, where every member is the given network, and all stay alike unless ``train_on="split"``
            or dropout tells them apart.
        init_spread: Their standard deviation with ``"normal"``.
        train_on: In training, ``"tile"``: every member sees the whole batch (the reference). ``"split"``: the batch is
            dealt out among the members (the paper).
        include: Layers to convert: name pattern, class, predicate on (name, module), or a list of them.
        exclude: Layers to leave.
        freeze_base: Train the factors alone; everything of the given network stays as it is.
        train: With ``freeze_base``: modules of the network that are trained, and saved, all the same, such as a new
            head; chosen as by ``include``.
        member_bias: Each member has its own biases.
        member_norm: Each member has its own norm layers, their running statistics included.
        clip: Clamp factors to [-clip, clip].
        family: No choice: ``sb.rank1`` has the others.
        prior_family: Adds -log p(r, s) of such a prior, for a maximum a posteriori estimate; None for no prior.
        prior_mean: Location of that prior, see ``sb.rank1``, as for the arguments below.
        prior_std: Its scale.
        prior_scale: ``"fixed"`` or ``"trainable"``.
        scale_prior: A distribution of the prior's scale.
        perturbation: ``"multiplicative"`` or ``"additive"``.
        embedding: ``"point"``; or ``"mean_field"``, a normal posterior that the members share.
        embedding_prior_std: Scale of that posterior's prior.
        noise: Of mean-field embeddings, which alone are random: ``"example"`` or ``"shared"``.
        batch_dim: Axis of the batch in inputs and outputs of two or more dimensions.
        trained: The network is trained already: options that are not given have values that suit it,
            ``init_spread=0.1``.

    Returns:
        A ``BayesianModel`` whose output has the members on the first axis.

    Example:
        >>> import torch
        >>> model = batch_ensemble(nn.Linear(8, 3), members=4, rank=2, init="sign")
        >>> model(torch.randn(5, 8)).shape, model.kl()
        (torch.Size([4, 5, 3]), tensor(0.))
    """
    if family != "delta":
        raise ValueError(
            f"Expected argument `family` of batch_ensemble to be 'delta', but got {family!r}. Use sb.rank1."
        )
    model = rank1(
        net,
        members,
        family=family,
        prior_mean=prior_mean,
        prior_std=prior_std,
        prior_family=prior_family,
        factors=factors,
        rank=rank,
        init=init,
        init_spread=init_spread,
        noise=noise,
        train_on=train_on,
        include=include,
        exclude=exclude,
        freeze_base=freeze_base,
        train=train,
        member_bias=member_bias,
        member_norm=member_norm,
        clip=clip,
        prior_scale=prior_scale,
        scale_prior=scale_prior,
        perturbation=perturbation,
        embedding=embedding,
        embedding_prior_std=embedding_prior_std,
        batch_dim=batch_dim,
    )
    model.method = "batch_ensemble"
    return model
