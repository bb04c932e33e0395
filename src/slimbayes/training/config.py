"""A training run as data: what ``slimbayes train`` reads, checks, shows and stores."""

import itertools
import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

__all__ = ["TrainConfig"]


def _named(value: Any) -> Any:
    """Let ``method: rank1`` stand for ``method: {name: rank1}``."""
    return {"name": value} if isinstance(value, str) else value


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(os.path.expanduser(path)))


#: A path that means the same wherever the run is opened or continued.
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
#: Before the name of a file among the data: it means the same on every machine.
PRETRAINED = "pretrained:"


def _weights_path(path: Path) -> Path:
    return path if str(path).startswith(PRETRAINED) else _absolute(path)


class Section(BaseModel):
    """Unknown keys are errors; values are checked whenever they are set."""

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class Named(Section):
    """A section that hands further keys on to what it names, which checks them."""

    model_config = ConfigDict(extra="allow", validate_assignment=True, use_attribute_docstrings=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """The further keys."""
        return dict(self.__pydantic_extra__ or {})


class Data(Named):
    """Further keys are the loader's own options, such as ``validation`` or ``augment``."""

    name: str
    """A set that `slimbayes data list` shows."""
    folder: AbsolutePath | None = None
    """Where the files are; by default $SLIMBAYES_DATA or ~/.cache/slimbayes/data."""
    train_limit: int | None = Field(None, ge=1)
    """Train on the first so many examples only."""
    evaluation_limit: int | None = Field(None, ge=1)
    """Validate and test on the first so many examples only."""
    workers: int = Field(0, ge=0)
    """Processes that fetch batches; the batches are the same for any number."""


class Net(Named):
    """Further keys are the network's own options, such as ``hidden`` or ``depth``."""

    name: str
    """mlp, lenet, wide_resnet, cifar_resnet, resnet4, resnet50, lstm, series, records, or package.module:function of
    your own."""
    weights: Annotated[Path, AfterValidator(_weights_path)] | None = None
    """Weights to start from: a .safetensors file, a state dict that torch.save wrote, or pretrained:NAME, which is
    pretrained/NAME.safetensors in the data folder ($SLIMBAYES_DATA)."""


class Method(Named):
    """Further keys are the method's own arguments, such as ``members`` or ``prior_std``."""

    name: str = "rank1"
    """deterministic, rank1, batch_ensemble, mean_field, k_tied, mc_dropout, deep_ensemble, swag, subspace or sgmcmc."""


class Optimiser(Section):
    """A torch optimiser, or a sampler for sgmcmc."""

    name: Literal["sgd", "adam", "adamw", "sgld", "sghmc"] = "adam"
    """sgd, adam or adamw; for the method sgmcmc sgld or sghmc."""
    lr: float = Field(1e-3, gt=0)
    """Learning rate of what the network had."""
    factor_lr: float | None = Field(None, gt=0)
    """Learning rate of what the method added (factors, standard deviations); by default the same."""
    weight_decay: float = Field(0.0, ge=0)
    """Of point estimates; the papers' l2 is half of it."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Of sgd."""
    nesterov: bool = True
    """Of sgd."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Of adam and adamw."""
    temperature: float = Field(1.0, ge=0)
    """Of sgld and sghmc: 1 samples from the posterior, less from a sharper one."""
    momentum_decay: float = Field(0.1, gt=0, le=1)
    """Of sghmc: one minus the momentum."""
    clip_norm: float | None = Field(None, gt=0)
    """Clip the norm of all gradients together; of each member's, where members share nothing."""


class Schedule(Section):
    """The learning rate over training, as a multiple of the optimiser's."""

    name: Literal["constant", "step", "cosine", "cyclical"] = "constant"
    """constant, step, cosine or cyclical."""
    warmup: float = Field(0.0, ge=0)
    """Epochs over which the rate first grows linearly."""
    at: list[float] = Field(default_factory=list)
    """Of step: epochs at which the rate is multiplied by `factor`."""
    factor: float = Field(0.2, gt=0)
    """Of step: what the rate is multiplied by."""
    final: float = Field(0.0, ge=0, le=1)
    """Of cosine: the multiple at the end."""
    cycles: int = Field(4, ge=1)
    """Of cyclical: how often the rate falls from 1 to 0 along a cosine."""
    exploration: float = Field(0.8, ge=0, lt=1)
    """Of cyclical: share of each cycle in which a sampler has no noise and nothing is collected."""

    @field_validator("at")
    @classmethod
    def _in_order(cls, value: list[float]) -> list[float]:
        if sorted(value) != value or any(epoch <= 0 for epoch in value):
            raise ValueError("give positive epochs in order, such as [80, 160, 180]")
        return value

    @model_validator(mode="after")
    def _steps_have_epochs(self) -> Self:
        if (self.name == "step") != bool(self.at):
            raise ValueError(
                f"`at` and `name: step` belong together, such as {{name: step, at: [80, 160]}}, but got name "
                f"{self.name!r} and at {self.at}"
            )
        if self.name == "cyclical" and self.warmup:
            raise ValueError(f"a cyclical schedule has no warm-up, but got warmup {self.warmup}; leave it out")
        return self


class Annealing(Section):
    """The weight of the KL over training."""

    name: Literal["none", "linear", "stepwise"] = "linear"
    """none, linear or stepwise."""
    fraction: float = Field(2 / 3, gt=0)
    """Of linear: the weight reaches 1 after this share of training; above 1 it never does."""
    slope: float = Field(5e-5, gt=0)
    """Of stepwise: what one step adds to the weight."""
    every: int = Field(100, ge=1)
    """Of stepwise: steps after which it is raised."""


class Collect(Section):
    """When swag, subspace and sgmcmc take the weights into their posterior."""

    start: float = Field(0.5, ge=0, lt=1)
    """Share of the run before the first time; with a cyclical schedule its sampling stages decide instead."""
    every: float = Field(1.0, gt=0)
    """Epochs from one time to the next, counted back from the end of the run or cycle."""
    draws: int = Field(30, ge=1)
    """Of swag and subspace: draws of each member whose batch-norm statistics are measured at the end, each by a pass
    over the training examples; and positions in the subspace that are kept."""
    inference: Literal["ess", "vi"] = "ess"
    """Of subspace: elliptical slice sampling or variational inference, at the end."""


class Evaluation(Section):
    """What is measured on validation and test examples."""

    samples: int | None = Field(None, ge=0)
    """Draws of each member; 0 for each member at its location. By default each epoch's validation takes one, and the
    scores at the end ``model.default_samples``: 8 draws in all."""
    every: int = Field(1, ge=1)
    """Epochs between validations; the last epoch is always validated."""
    batch_size: int | None = Field(None, ge=1)
    """Examples at once; by default as many as fit a bounded memory."""
    test: bool = True
    """Score the best checkpoint on the test examples at the end."""


class Watch(Section):
    """What is looked at while a variational model trains; lines of metrics.jsonl with the key `watch`."""

    every: int | None = Field(None, ge=1)
    """Steps between looks at each layer's mean standard deviation and, on validation examples if any, at -ELBO."""
    samples: int = Field(1, ge=1)
    """Draws of each member for that."""
    snr: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    """Steps after which the signal-to-noise ratio of the standard deviations' gradients is stored."""
    window: int = Field(10, ge=2)
    """Steps up to there whose gradients count."""

    @model_validator(mode="after")
    def _windows_apart(self) -> Self:
        steps = [0, *self.snr]
        if any(later - earlier < self.window for earlier, later in itertools.pairwise(steps)):
            raise ValueError(f"give steps in order, `window` ({self.window}) or more apart, but got snr {self.snr}")
        return self


class Range(Section):
    """Numbers from ``low`` to ``high``; whole ones if both are."""

    low: int | float
    """The least value."""
    high: int | float
    """The largest value."""
    log: bool = False
    """Look at orders of magnitude rather than at differences."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low < self.high or (self.log and self.low <= 0):
            wanted = "0 < low < high" if self.log else "low < high"
            raise ValueError(f"give {wanted}, but got low {self.low:g} and high {self.high:g}")
        return self


class Layers(Section):
    """Widths of hidden layers: ``depth`` of them, all of one ``width``."""

    width: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
    """The least and the largest width."""
    depth: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = (1, 4)
    """The least and the largest number of layers."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for name, (low, high) in {"width": self.width, "depth": self.depth}.items():
            if low > high:
                raise ValueError(f"give the lower {name} first, but got [{low}, {high}]")
        return self


def _form(value: Any) -> str:
    if isinstance(value, list):
        return "choices"
    layers = isinstance(value, Layers) or (isinstance(value, dict) and {"width", "depth"} & value.keys())
    return "layers" if layers else "range"


#: What is tried of one key.
Tried = Annotated[
    Annotated[list[Any], Field(min_length=1), Tag("choices")]
    | Annotated[Layers, Tag("layers")]
    | Annotated[Range, Tag("range")],
    Discriminator(_form),
]


class Tune(Section):
    """What `slimbayes tune` tries; training takes no notice of it."""

    trials: int = Field(20, ge=1)
    """Configurations to try."""
    pruner: Literal["median", "hyperband", "none"] = "median"
    """What ends a trial early by its validation NLL: median (worse than half of the others at that epoch), hyperband,
    none."""
    space: dict[str, Tried] | None = Field(None, min_length=1)
    """Keys, such as optimiser.lr, each with a list of choices, with {low: 1e-4, high: 1e-2, log: true}, or, for widths
    of layers, with {width: [32, 256], depth: [1, 4]}; by default learning rate, widths and the method's scales."""


class TrainConfig(Section):
    """Everything that a run depends on.

    Example:
        >>> config = TrainConfig(data="digits", net={"name": "mlp", "hidden": [64]}, method="rank1")
        >>> config.method.name, config.epochs, config.batch_size
        ('rank1', 10, 128)
    """

    data: Annotated[Data, BeforeValidator(_named, str | Data)]
    """What to train on: a set that `slimbayes data list` shows; further keys are its own options."""
    net: Annotated[Net, BeforeValidator(_named, str | Net)]
    """The network; further keys are its own options."""
    method: Annotated[Method, BeforeValidator(_named, str | Method)] = Method()
    """How draws are got out of the network; further keys are the arguments of sb.rank1 and so on."""
    likelihood: str | dict[str, Any] | None = None
    """By default what the data ask for; student_t for real values, negative_binomial for counts, ordinal for classes
    that have an order; further keys are its own options, such as ``label_smoothing``."""
    objective: Literal["average", "mixture", "marginal_logits", "marginal_probs"] = "average"
    """Which form of the likelihood's part (appendix D of the rank-1 paper)."""
    member_kl: Literal["sum", "mean"] = "sum"
    """Whether the members' KL divergences are added, or their mean is taken."""
    optimiser: Annotated[Optimiser, BeforeValidator(_named, str | Optimiser)] = Optimiser()
    """A torch optimiser, or a sampler for sgmcmc."""
    schedule: Annotated[Schedule, BeforeValidator(_named, str | Schedule)] = Schedule()
    """The learning rate over training, as a multiple of the optimiser's."""
    annealing: Annotated[Annealing, BeforeValidator(_named, str | Annealing)] = Annealing()
    """The weight of the KL over training."""
    collect: Collect = Collect()
    """When swag, subspace and sgmcmc take the weights into their posterior."""
    epochs: int | None = Field(None, ge=1)
    """Passes over the training examples; 10 unless `steps` is given."""
    steps: int | None = Field(None, ge=1)
    """Optimiser steps, instead of epochs."""
    max_seconds: float | None = Field(None, gt=0)
    """End after the epoch in which so many seconds have passed; schedule and annealing are those of the full length."""
    batch_size: int = Field(128, ge=1)
    """Distinct examples of an optimiser step, over all processes; the members' copies do not count."""
    accumulate: int = Field(1, ge=1)
    """Parts in which the examples of a step are handled one after another, to save memory."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """fp32, bf16, or fp16 (on a GPU only)."""
    device: Literal["auto", "cpu"] = "auto"
    """auto takes a GPU if there is one."""
    channels_last: bool = True
    """Memory layout of convolutional networks; faster on most machines."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Of weights, order, augmentation and noise."""
    evaluation: Evaluation = Evaluation()
    """What is measured on validation and test examples."""
    watch: Watch = Watch()
    """What is looked at while a variational model trains; lines of metrics.jsonl with the key `watch`."""
    log_every: int = Field(50, ge=1)
    """Steps between lines of metrics.jsonl."""
    trackers: list[Literal["tensorboard", "wandb", "mlflow"]] = Field(default_factory=list)
    """Where metrics go besides metrics.jsonl; each must be installed."""
    tune: Tune | None = Field(None, exclude=True)
    """What `slimbayes tune` tries; training takes no notice of it."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give `epochs` or `steps`, not both; `epochs=null steps=100` replaces one by the other")
        if self.epochs is None and self.steps is None:
            self.__dict__["epochs"] = 10  # not through validation, which would come here again
        return self

    @property
    def length(self) -> dict[str, Any]:
        """How long to train: what a finished run's result says that it was made with."""
        limit = {} if self.max_seconds is None else {"max_seconds": self.max_seconds}
        return {"epochs": self.epochs, "steps": self.steps, **limit}

    def as_json(self) -> dict[str, Any]:
        """Return the effective configuration, of training alone, as JSON values."""
        return self.model_dump(mode="json")
