"""Classification of tables."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_y, column_or_1d
from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.calibration._quantile import conformal_quantile
from slimbayes.likelihoods import Categorical, Likelihood
from slimbayes.prediction import Prediction
from slimbayes.sklearn._columns import Columns
from slimbayes.sklearn._estimator import BayesEstimator, Uncertainty


class BayesClassifier(ClassifierMixin, BayesEstimator):
    """A Bayesian neural network that predicts classes from a table, with probabilities to rely on.

    Columns may be numbers, texts, categories, dates or truth values, with missing values; numbers that are written as
    texts are read as numbers.

    Args:
        method: Any method of slimbayes that can be trained, by name: ``"rank1"``, ``"batch_ensemble"``,
            ``"mean_field"``, ``"k_tied"``, ``"mc_dropout"``, ``"deep_ensemble"``, ``"deterministic"``, or your own.
        class_weight: Weights of the classes in training: a dict, ``"balanced"``, or None. Predicted probabilities are
            then those of a table in which the classes were so frequent.
        members: Mixture components; None for the method's own number; 8 with the default method.
        family: Distribution of the factors, such as ``"normal"`` or ``"cauchy"``; None for the method's own.
        method_options: Other options of the method; None for the method's own; with the default method,
            the members' factors are on the first and the last layer alone (``include``, ``factors``, ``init``).
        width: Of each hidden layer.
        depth: Hidden layers; with ``residual`` one, and residual blocks after it.
        residual: Whether to use residual blocks.
        dropout: Rate of dropout after hidden layers.
        embedding: Of numbers: None, ``"piecewise"`` or ``"periodic"``; see ``sb.nets.PiecewiseLinear``, ``Periodic``.
        embedding_size: Features of an embedded number.
        learning_rate: Of AdamW; of a sampler its step.
        weight_decay: Of what has no prior.
        beta: Weight of the KL.
        batch_size: Rows of a step; ``"auto"`` for 16 to 512, about a sixteenth of the rows.
        max_epochs: Epochs at most.
        early_stopping: Hold some rows out, stop when their likelihood no longer rises, and keep the best weights.
            Fewer than 20 rows are not divided.
        validation_fraction: The share of rows that are held out.
        patience: Epochs without a better score after which to stop.
        refit: After early stopping, train anew on all rows for as many epochs as were best. ``"auto"``: with fewer than
            2000 rows, of which those held out would be missed.
        calibration_fraction: A share of rows that are left out of everything else, for conformal predictions.
        max_seconds: Training stops after so much time, with the best weights so far.
        draws: Networks that a prediction is made of, at least; the same ones for each prediction.
        categorical: Names or positions of columns that are names, though they look like numbers. Texts, pandas'
            categories and truth values need not be listed.
        max_categories: Categories of a column that are told apart, the most frequent ones.
        warm_start: Let ``fit`` go on from the weights that are there.
        dtype: Precision of training, ``"float32"`` or ``"float64"``. Predictions are made in the latter.
        random_state: Decides the initial weights, the order of rows, the rows held out and the draws.
        verbose: Print the scores of every so many epochs; 0 for nothing.

    Attributes:
        classes_: The classes, in the order of ``predict_proba``.
        model_: The trained ``BayesianModel``.
        n_iter_: Epochs whose weights were kept.
        history_: Scores of each epoch, and what came of them.
        n_features_in_: Number of columns.
        feature_names_in_: Their names, if they have names.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(200, 2))
        >>> model = BayesClassifier(max_epochs=10, random_state=0).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
        >>> model.classes_.tolist(), model.predict_proba(X).shape, str(model.predict([[3.0, 0.0]])[0])
        (['no', 'yes'], (200, 2), 'yes')
    """

    def __init__(
        self,
        method: str = "batch_ensemble",
        *,
        class_weight: dict[Any, float] | str | None = None,
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
        super().__init__(
            method=method,
            members=members,
            family=family,
            method_options=method_options,
            width=width,
            depth=depth,
            residual=residual,
            dropout=dropout,
            embedding=embedding,
            embedding_size=embedding_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            beta=beta,
            batch_size=batch_size,
            max_epochs=max_epochs,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            refit=refit,
            calibration_fraction=calibration_fraction,
            max_seconds=max_seconds,
            draws=draws,
            categorical=categorical,
            max_categories=max_categories,
            warm_start=warm_start,
            dtype=dtype,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    # ------------------------------------------------------------------ targets

    def _likelihood(self) -> Likelihood:
        return Categorical()

    def _outputs(self) -> int:
        return len(self.classes_)

    def _check_targets(self, y: Any) -> NDArray[Any]:
        y = column_or_1d(y, warn=True)
        y = _check_y(y, estimator=self) if y.dtype.kind in "fiu" else y
        if y.dtype == object and any(value is None or value != value for value in y.tolist()):
            raise ValueError("Input y contains NaN.")
        check_classification_targets(y)
        return y

    def _learn_targets(self, y: NDArray[Any], weights: NDArray[np.float64] | None) -> None:
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(
                f"The number of classes has to be greater than one; got {len(classes)} class ({classes[0]!r})."
            )
        self.classes_ = classes
        self.calibration_scores_: NDArray[np.float64] | None = None

    def _targets(self, y: NDArray[Any]) -> Tensor:
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                f"Expected `y` to hold the classes {self.classes_.tolist()}, but got {unknown.tolist()}. Give all "
                "`classes` to the first partial_fit."
            )
        return torch.from_numpy(np.searchsorted(self.classes_, y))

    def _read_training(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        reset: bool,
    ) -> tuple[Columns, NDArray[Any], NDArray[np.float64] | None]:
        table, y, weights = super()._read_training(X, y, sample_weight, reset)
        if self.class_weight is not None:
            of_class = compute_sample_weight(self.class_weight, y)
            weights = of_class if weights is None else weights * of_class
        return table, y, weights

    def _split(self, y: NDArray[Any], fraction: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows to keep and those to hold out, the classes in proportion where that can be."""
        held, counts = max(1, round(fraction * len(y))), np.unique(y, return_counts=True)[1]
        if counts.min() < 2 or min(held, len(y) - held) < len(counts):
            return super()._split(y, fraction, seed)
        kept, out = train_test_split(np.arange(len(y)), test_size=held, random_state=seed % 2**32, stratify=y)
        return np.sort(kept), np.sort(out)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Go once through some rows, and on from the weights that are there.

        The first rows decide how columns are read.

        Args:
            X: A table.
            y: The class of each row.
            classes: All classes, in the first call, unless its rows have them all.
            sample_weight: How often each row counts.
        """
        first = not hasattr(self, "model_")
        return self._partial_fit(X, y, sample_weight, first, classes)

    # ------------------------------------------------------------------ predictions

    def _predictions(self, table: Columns) -> Any:
        likelihood = self.model_.likelihood
        return (Prediction(outputs, likelihood, self.model_.members) for outputs in self._draws_of(table))

    def _probabilities(self, table: Columns) -> NDArray[np.float64]:
        probs = np.concatenate([p.probs.numpy() for p in self._predictions(table)])
        return probs / probs.sum(1, keepdims=True)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, the mean over draws, ``(rows, classes)``.

        Args:
            X: A table with the columns of training.
        """
        return self._probabilities(self._read(X, reset=False))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return its logarithm.

        Args:
            X: A table with the columns of training.
        """
        return np.concatenate([p.log_probs.numpy() for p in self._predictions(self._read(X, reset=False))])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row.

        Args:
            X: A table with the columns of training.
        """
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def _uncertainty(self, table: Columns) -> Uncertainty:
        each = [(p.entropy, p.expected_entropy, p.mutual_information) for p in self._predictions(table)]
        return Uncertainty(*(torch.cat(parts).numpy() for parts in zip(*each, strict=True)))

    def sample(self, X: Any, n: int = 1, random_state: Any = None) -> NDArray[Any]:
        """Return classes that may be, drawn from ``predict_proba``, ``(n, rows)``.

        Args:
            X: A table with the columns of training.
            n: How many for each row.
            random_state: A seed.
        """
        check_count("n", n)
        shares = self.predict_proba(X).cumsum(1)
        draws = check_random_state(random_state).random_sample((n, len(shares), 1))
        return self.classes_[(draws > shares).sum(2).clip(max=len(self.classes_) - 1)]

    # ------------------------------------------------------------------ conformal sets

    def _calibrate(self, table: Columns, y: NDArray[Any]) -> None:
        probs = self._probabilities(table)
        self.calibration_scores_ = np.sort(1 - probs[np.arange(len(y)), self._targets(y).numpy()])

    def calibrate(self, X: Any, y: Any) -> Self:
        """Remember the probabilities of the right classes of rows that were not trained on, for ``predict_set``.

        Args:
            X: Rows that neither training nor early stopping has seen.
            y: Their classes.
        """
        table, y, _ = self._read_training(X, y, None, reset=False)
        self._calibrate(table, y)
        return self

    def predict_set(self, X: Any, coverage: float = 0.9) -> NDArray[np.bool_]:
        r"""Return which classes are in each row's set, which holds the right one with a given probability.

        Split conformal prediction: the classes with :math:`1 - p_c \le \hat q`, the quantile of what the calibration
        rows' own classes have. Needs ``calibration_fraction`` or ``calibrate``.

        Args:
            X: A table with the columns of training.
            coverage: The probability, on average over rows like those of calibration.
        """
        if self.calibration_scores_ is None:
            raise ValueError(
                "Sets need rows that were not trained on. Fit with calibration_fraction=0.2, or call calibrate(X, y) "
                "with rows of your own."
            )
        quantile = conformal_quantile(torch.from_numpy(self.calibration_scores_), float(coverage))
        return 1 - self.predict_proba(X) <= quantile

    # ------------------------------------------------------------------ files

    def _fitted_state(self) -> dict[str, Any]:
        scores = self.calibration_scores_
        return {
            "classes": self.classes_.tolist(),
            "classes_dtype": "object" if self.classes_.dtype == object else self.classes_.dtype.str,
            "calibration_scores": None if scores is None else scores.tolist(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.classes_ = np.array(state["classes"], dtype=state["classes_dtype"])
        scores = state["calibration_scores"]
        self.calibration_scores_ = None if scores is None else np.array(scores)
