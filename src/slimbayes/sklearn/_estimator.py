"""What the classifier and the regressor have in common."""

import inspect
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Bunch, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Generator, Tensor, nn

import slimbayes
from slimbayes._checks import check_choice, check_count, check_number
from slimbayes._files import read_json, replacing
from slimbayes._seeds import mix
from slimbayes.likelihoods import Likelihood
from slimbayes.methods.registry import get_method
from slimbayes.model import BayesianModel
from slimbayes.nets.number_embedding import Periodic, PiecewiseLinear
from slimbayes.nets.table import TableMLP
from slimbayes.objective import ELBO
from slimbayes.pretrained import load as load_model
from slimbayes.sklearn._columns import Columns, Encoder, check_names_differ, read_columns
from slimbayes.sklearn._fitting import History, Plan, Rows, collect, one_epoch, optimiser_of, train

#: The file beside those of ``save_pretrained``.
FILE, FORMAT = "estimator.json", 1
#: Rows that are predicted at once.
BLOCK = 8192
#: Fewer rows than this are not divided for early stopping, which they would say nothing about.
FEW_ROWS = 20
#: Fewer rows than this are all trained on in the end, by default.
REFIT_ROWS = 2000
#: Epochs where nothing can stop them early.
FEW_EPOCHS = 100
#: Up to so many outputs have a layer each, so that each member has a head of its own.
FEW_OUTPUTS = 4
#: Options of a method whose factors are points, unless others are given: weights shared as in TabM-mini (Gorishniy et
#: al. 2024, section 3.3). The factors are on the inputs of the first and the last layer, and the body is shared.
#: Factors with a prior around 1 would be pulled there from -1.
TABLE_OPTIONS = {"members": 8, "include": ["stem", "head*"], "factors": "input", "init": "sign"}
EMBEDDINGS = ("piecewise", "periodic")


class Uncertainty(NamedTuple):
    """What is not known about each row.

    Attributes:
        total: All of it: a standard deviation, or for classes an entropy in nats.
        noise: In the data: more rows like these would not take it away.
        ignorance: Of the model, which more rows would take away: standard deviation of the draws' means, or for
            classes the mutual information.
    """

    total: NDArray[np.float64]
    noise: NDArray[np.float64]
    ignorance: NDArray[np.float64]


class BayesEstimator(BaseEstimator):
    """Tables to models; subclasses know about targets."""

    def __init__(
        self,
        method: str = "batch_ensemble",
        *,
        members: int | None = None,
        family: str | None = None,
        method_options: dict[str, Any] | None = None,
        width: int = 128,
        depth: int = 2,
        residual: bool = False,
        dropout: float = 0.0,
        embedding: str | None = None,
        embedding_size: int = 8,
        learning_rate: float = 2e-3,
        weight_decay: float = 3e-4,
        beta: float = 1.0,
        batch_size: int | str = "auto",
        max_epochs: int = 200,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        patience: int = 16,
        refit: bool | str = "auto",
        calibration_fraction: float = 0.0,
        max_seconds: float | None = None,
        draws: int = 16,
        categorical: Sequence[str | int] | None = None,
        max_categories: int = 100,
        warm_start: bool = False,
        dtype: str = "float32",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.members = members
        self.family = family
        self.method_options = method_options
        self.width = width
        self.depth = depth
        self.residual = residual
        self.dropout = dropout
        self.embedding = embedding
        self.embedding_size = embedding_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.beta = beta
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.refit = refit
        self.calibration_fraction = calibration_fraction
        self.max_seconds = max_seconds
        self.draws = draws
        self.categorical = categorical
        self.max_categories = max_categories
        self.warm_start = warm_start
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    # ------------------------------------------------------------------ what subclasses say

    def _likelihood(self) -> Likelihood:
        """Return what the network is trained by."""
        raise NotImplementedError

    def _outputs(self) -> int:
        """Return how many numbers the network returns."""
        raise NotImplementedError

    def _learn_targets(self, y: NDArray[Any], weights: NDArray[np.float64] | None) -> None:
        """Remember what the targets are like."""
        raise NotImplementedError

    def _targets(self, y: NDArray[Any]) -> Tensor:
        """Return targets as the likelihood has them."""
        raise NotImplementedError

    def _check_targets(self, y: Any) -> NDArray[Any]:
        """Return valid targets, ``(rows,)``."""
        raise NotImplementedError

    def _split(self, y: NDArray[Any], fraction: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows to keep and those to hold out."""
        order = np.random.default_rng(seed).permutation(len(y))
        held = max(1, round(fraction * len(y)))
        return np.sort(order[held:]), np.sort(order[:held])

    def _tune(self, rows: Rows, y: NDArray[Any]) -> None:
        """Set what is set on held-out rows."""

    def _calibrate(self, table: Columns, y: NDArray[Any]) -> None:
        """Remember what conformal predictions need of rows that were not trained on."""

    def _fitted_state(self) -> dict[str, Any]:
        """Return JSON values of what ``_learn_targets`` and ``_tune`` have set."""
        raise NotImplementedError

    def _restore(self, state: dict[str, Any]) -> None:
        """Set what ``_fitted_state`` returned."""
        raise NotImplementedError

    # ------------------------------------------------------------------ scikit-learn

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_optimiser"}

    # ------------------------------------------------------------------ fit

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on a table.

        Args:
            X: Rows and columns: a pandas or polars frame, an array, or a sparse matrix.
            y: The target of each row.
            sample_weight: How often each row counts; 0 leaves it out.
        """
        start = time.monotonic()
        self._check_options()
        again = self.warm_start and hasattr(self, "model_")
        table, y, weights = self._read_training(X, y, sample_weight, reset=not again)
        if not again:
            self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        if self.calibration_fraction > 0:
            kept, held = self._split(y, self.calibration_fraction, mix(self.seed_, 1))
            calibration = table.take(held), y[held]
            table, y, weights = table.take(kept), y[kept], None if weights is None else weights[kept]
        if not again:
            self._learn_targets(y, weights)
            self.encoder_ = self._encoder(table, weights)
        rows = self._rows(table, y, weights)
        stops = self.early_stopping and len(rows) >= FEW_ROWS
        plan = self._plan(len(rows))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(self.seed_, 2))
            model = self.model_.to(self._torch_dtype()) if again else self._build(rows)
            if stops:
                kept, held = self._split(y, self.validation_fraction, mix(self.seed_, 3))
                training, held_out = (self._part(rows, part) for part in (kept, held))
                self.history_ = self._train(model, training, held_out, plan, start)
                self._settle(model)
                self._tune(held_out, y[held])
                refit = len(rows) < REFIT_ROWS if self.refit == "auto" else self.refit
                if refit and not again and self._time_for_refit(start):
                    torch.manual_seed(mix(self.seed_, 2))
                    model = self._build(rows)
                    self._train(model, rows, None, self._plan(len(rows), self.history_.best_epoch), start)
                    self._settle(model)
            else:
                epochs = min(FEW_EPOCHS, self.max_epochs) if self.early_stopping else self.max_epochs
                self.history_ = self._train(model, rows, None, self._plan(len(rows), epochs), start)
                self._settle(model)
        self.n_iter_ = self.history_.best_epoch
        self.rows_seen_ = self._num_data
        if self.calibration_fraction > 0:
            self._calibrate(*calibration)
        return self

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, first: bool, classes: Any = None) -> Self:
        self._check_options()
        table, y, weights = self._read_training(X, y, sample_weight, reset=first)
        if first:
            self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._learn_targets(y if classes is None else self._check_targets(classes), weights)
            self.encoder_ = self._encoder(table, weights)
            self.n_iter_ = self.rows_seen_ = 0
        rows = self._rows(table, y, weights)
        self.rows_seen_ += self._num_data
        self.n_iter_ += 1
        plan = self._plan(len(rows))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(self.seed_, 4, self.n_iter_))
            model = self._build(rows) if first else self.model_.to(self._torch_dtype())
            elbo = ELBO(model, self.rows_seen_, model.likelihood or self._likelihood(), beta=self.beta)
            if first or not hasattr(self, "_optimiser"):
                self._optimiser = optimiser_of(model, plan, self.rows_seen_)
            generator = Generator().manual_seed(mix(self.seed_, 5, self.n_iter_))
            one_epoch(model, elbo, self._optimiser, rows, plan.batch_size, generator)
            self._settle(model)
        return self

    def _read_training(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        reset: bool,
    ) -> tuple[Columns, NDArray[Any], NDArray[np.float64] | None]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        table = self._read(X, reset)
        y = self._check_targets(y)
        if len(y) != len(table):
            raise ValueError(f"Found input variables with inconsistent numbers of samples: [{len(table)}, {len(y)}]")
        if sample_weight is None:
            return table, y, None
        weights = _check_sample_weight(
            sample_weight, np.empty((len(table), 1)), dtype=np.float64, ensure_non_negative=True
        )
        counted = np.flatnonzero(weights)
        if len(counted) == 0:
            raise ValueError("Sample weights must contain at least one non-zero number.")
        if len(counted) < len(weights):
            table, y, weights = table.take(counted), y[counted], weights[counted]
        return table, y, weights

    def _read(self, X: Any, reset: bool) -> Columns:
        if not reset:
            check_is_fitted(self, "model_")
        if not hasattr(X, "columns"):
            table = read_columns(X, self)
            validate_data(self, X, reset=reset, skip_check_array=True)
            return table
        check_names_differ(X)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return read_columns(X, self)

    def _encoder(self, table: Columns, weights: NDArray[np.float64] | None) -> Encoder:
        return Encoder.of(table, self._column_names(), weights, self._categorical_columns(), self.max_categories)

    def _column_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return (
            [f"x{number}" for number in range(self.n_features_in_)] if names is None else [str(name) for name in names]
        )

    def _categorical_columns(self) -> list[int]:
        names, found = self._column_names(), []
        for each in [self.categorical] if isinstance(self.categorical, str) else self.categorical or ():
            if isinstance(each, str):
                check_choice("categorical", each, names)
                found += [number for number, name in enumerate(names) if name == each]
            elif 0 <= each < len(names):
                found.append(int(each))
            else:
                raise ValueError(
                    f"Expected argument `categorical` to hold names or positions below {len(names)}, but got {each!r}."
                )
        return found

    def _rows(self, table: Columns, y: NDArray[Any], weights: NDArray[np.float64] | None) -> Rows:
        targets = self._targets(y)
        dtype = self._torch_dtype()
        x = torch.from_numpy(self.encoder_(table)).to(dtype)
        w = torch.ones(len(x), dtype=dtype) if weights is None else torch.from_numpy(weights / weights.mean()).to(dtype)
        self._num_data = max(len(x), 0 if weights is None else round(weights.sum()))
        return Rows(x, targets.to(dtype) if targets.is_floating_point() else targets, w)

    @staticmethod
    def _part(rows: Rows, part: NDArray[np.int64]) -> Rows:
        index = torch.from_numpy(part)
        return Rows(rows.x[index], rows.y[index], rows.weights[index])

    def _train(self, model: BayesianModel, rows: Rows, held_out: Rows | None, plan: Plan, start: float) -> History:
        share = len(rows) / (len(rows) + (0 if held_out is None else len(held_out)))
        num_data = max(1, round(share * self._num_data))
        elbo = ELBO(model, num_data, model.likelihood or self._likelihood(), beta=self.beta)
        model.to(self._torch_dtype())
        generator = Generator().manual_seed(mix(self.seed_, 5))
        if plan.seconds is not None:
            plan = Plan(**{**vars(plan), "seconds": max(0.0, plan.seconds - (time.monotonic() - start))})
        optimiser = optimiser_of(model, plan, num_data)
        history = train(model, elbo, optimiser, rows, held_out, plan, generator, self._samples(model))
        collect(model, elbo, optimiser, rows, plan, generator, mix(self.seed_, 7))
        return history

    def _settle(self, model: BayesianModel) -> None:
        """Keep a model for predictions, which are made in double precision: a row's does not depend on the others."""
        self.model_ = model.double().eval()

    def _time_for_refit(self, start: float) -> bool:
        taken = time.monotonic() - start
        return self.max_seconds is None or (self.history_.in_time and 2 * taken < self.max_seconds)

    def _plan(self, rows: int, epochs: int | None = None) -> Plan:
        size = self.batch_size
        if size == "auto":
            size = min(512, max(16, 2 ** int(np.log2(max(1, rows / 16)))))
        return Plan(
            epochs=self.max_epochs if epochs is None else epochs,
            patience=self.patience,
            batch_size=int(size),
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            seconds=self.max_seconds,
            verbose=int(self.verbose),
        )

    def _samples(self, model: BayesianModel) -> int:
        """Return how many draws of each member a prediction takes."""
        if model.is_point:
            return 1
        return -(-self.draws // model.members)

    def _torch_dtype(self) -> torch.dtype:
        return {"float32": torch.float32, "float64": torch.float64}[self.dtype]

    # ------------------------------------------------------------------ the network

    def _build(self, rows: Rows | None) -> BayesianModel:
        """Return a new model; ``rows`` give the bins of a piecewise-linear embedding."""
        method = get_method(self.method)
        if method.after_training:
            raise ValueError(
                f"Expected argument `method` to be one that is trained, but got {self.method!r}, which is fitted to a "
                "trained network. Use 'batch_ensemble' or 'rank1'."
            )

        def network() -> nn.Module:
            return self._network(rows).to(self._torch_dtype())

        made = method.make(network if method.of_networks else network(), **self._method_options())
        made.likelihood = self._likelihood().to(dtype=self._torch_dtype())
        return made

    def _network(self, rows: Rows | None) -> TableMLP:
        return TableMLP(
            self.encoder_.numbers,
            self.encoder_.others,
            self._outputs(),
            self.width,
            self.depth,
            self.residual,
            self.dropout,
            self._embedding(rows),
            apart=self._outputs() <= FEW_OUTPUTS,
        )

    def _method_options(self) -> dict[str, Any]:
        method = get_method(self.method)
        family = inspect.signature(method.make).parameters.get("family")
        points = family is not None and family.default == "delta"
        own = (TABLE_OPTIONS if points else {}) if self.method_options is None else self.method_options
        given = {"members": self.members, "family": self.family}
        options = own | {name: value for name, value in given.items() if value is not None}
        method.check_options(options)
        return options

    def _embedding(self, rows: Rows | None) -> nn.Module | None:
        numbers = self.encoder_.numbers
        if self.embedding is None or numbers == 0:
            return None
        if self.embedding == "periodic":
            return Periodic(numbers, self.embedding_size)
        if rows is None:  # the file has them
            return PiecewiseLinear(torch.zeros(numbers, self.embedding_size + 1))
        return PiecewiseLinear(PiecewiseLinear.quantile_edges(rows.x[:, :numbers], self.embedding_size))

    def _check_options(self) -> None:
        check_number("learning_rate", self.learning_rate, 0.0)
        check_number("weight_decay", self.weight_decay, 0.0, or_low=True)
        check_number("beta", self.beta, 0.0, or_low=True)
        check_number("validation_fraction", self.validation_fraction, 0.0, 1.0)
        check_number("calibration_fraction", self.calibration_fraction, 0.0, 1.0, or_low=True)
        for name in ("max_epochs", "patience", "draws", "max_categories", "embedding_size"):
            check_count(name, getattr(self, name))
        if self.batch_size != "auto":
            check_count("batch_size", self.batch_size, remedy="Or give 'auto'.")
        if self.embedding is not None:
            check_choice("embedding", self.embedding, EMBEDDINGS)
        check_choice("dtype", self.dtype, ("float32", "float64"))
        if self.refit not in (True, False):
            check_choice("refit", self.refit, ("auto",))
        if self.max_seconds is not None:
            check_number("max_seconds", self.max_seconds, 0.0)

    # ------------------------------------------------------------------ predictions

    def _draws_of(self, table: Columns) -> Iterator[Tensor]:
        """Yield the outputs of all draws, ``(draws, rows, outputs)``, for some rows at a time.

        A draw is one network for all rows, and the draws are always the same.
        """
        return self._outputs_for(torch.from_numpy(self.encoder_(block)) for block in table.blocks(BLOCK))

    def _outputs_for(self, inputs: Iterable[Tensor]) -> Iterator[Tensor]:
        samples = self._samples(self.model_)
        for x in inputs:
            with torch.no_grad():
                generator = Generator().manual_seed(mix(self.seed_, 6))
                yield self.model_(x, samples=samples, noise="shared", generator=generator)

    def _uncertainty(self, table: Columns) -> Uncertainty:
        raise NotImplementedError

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Return what is noise in the data and what the model does not know, of each row.

        Args:
            X: A table with the columns of training.
        """
        return self._uncertainty(self._read(X, reset=False))

    def explain_uncertainty(
        self,
        X: Any,
        of: str = "total",
        n_repeats: int = 5,
        random_state: Any = None,
    ) -> Bunch:
        """Return which columns drive the uncertainty: how much it changes if a column's values are permuted.

        The importance of a column is the root of the mean squared change of the rows' uncertainty, in its units.

        Args:
            X: A table with the columns of training.
            of: ``"total"``, ``"noise"`` or ``"ignorance"``.
            n_repeats: Permutations of each column.
            random_state: Decides them.

        Returns:
            As ``sklearn.inspection.permutation_importance`` does: ``importances``, ``importances_mean`` and
            ``importances_std`` of the columns, and their ``names``, all in the order of the columns.
        """
        check_choice("of", of, Uncertainty._fields)
        check_count("n_repeats", n_repeats)
        table = self._read(X, reset=False)
        random = check_random_state(random_state)
        before = getattr(self._uncertainty(table), of)
        importances = np.zeros((self.n_features_in_, n_repeats))
        for repeat in range(n_repeats):
            order = random.permutation(len(table))
            for number in range(self.n_features_in_):
                after = getattr(self._uncertainty(table.with_column(number, order)), of)
                importances[number, repeat] = np.sqrt(np.mean((after - before) ** 2))
        return Bunch(
            importances=importances,
            importances_mean=importances.mean(1),
            importances_std=importances.std(1),
            names=self._column_names(),
        )

    # ------------------------------------------------------------------ files

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator without pickle: ``model.safetensors``, ``config.json`` and ``estimator.json``.

        Args:
            folder: Where to; ``load`` reads it.
        """
        check_is_fitted(self, "model_")
        folder = Path(folder)
        params = self.get_params(deep=False)
        if not isinstance(params["random_state"], (int, np.integer, type(None))):
            params["random_state"] = None  # a generator, whose seed is kept as seed_
        about = {
            "format": FORMAT,
            "slimbayes": slimbayes.__version__,
            "estimator": type(self).__name__,
            "params": params,
            "seed": self.seed_,
            "n_iter": self.n_iter_,
            "rows_seen": self.rows_seen_,
            "n_features_in": self.n_features_in_,
            "feature_names_in": getattr(self, "feature_names_in_", np.array([])).tolist() or None,
            "columns": self.encoder_.spec(),
            **self._fitted_state(),
        }
        try:
            text = json.dumps(about, indent=2, default=_plain)
        except TypeError as error:
            raise TypeError(
                f"Cannot write the arguments of this {type(self).__name__} as JSON: {error}. Give names instead of "
                "objects, such as family='cauchy'."
            ) from error
        self.model_.save_pretrained(folder)
        with replacing(folder / FILE) as (path,):
            path.write_text(text + "\n")

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what ``save`` wrote; it runs no code of the file's.

        Args:
            folder: Where it is.
        """
        folder = Path(folder)
        about = read_json(folder / FILE, "Save the estimator again.")
        if about.get("format") != FORMAT or about.get("estimator") != cls.__name__:
            raise ValueError(
                f"{str(folder / FILE)!r} holds a {about.get('estimator')} of format {about.get('format')}, but "
                f"{cls.__name__}.load reads format {FORMAT} of its own. Use the class that wrote it."
            )
        made = cls(**about["params"])
        made.seed_, made.n_iter_, made.rows_seen_ = about["seed"], about["n_iter"], about["rows_seen"]
        made.n_features_in_ = about["n_features_in"]
        if about["feature_names_in"] is not None:
            made.feature_names_in_ = np.array(about["feature_names_in"], dtype=object)
        made.encoder_ = Encoder.from_spec(about["columns"])
        made._restore(about)
        made._settle(load_model(folder, made._network(None).double()))
        return made


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} is neither a number nor a text")
