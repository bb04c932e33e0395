"""Regression of tables."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_y, column_or_1d
from torch import Tensor

from slimbayes._checks import check_choice, check_number
from slimbayes.calibration._quantile import conformal_quantile
from slimbayes.likelihoods import Likelihood
from slimbayes.sklearn._columns import Columns, weighted_mean_and_std
from slimbayes.sklearn._distribution import PredictiveDistribution
from slimbayes.sklearn._estimator import BLOCK, BayesEstimator, Uncertainty
from slimbayes.sklearn._fitting import Rows
from slimbayes.sklearn._heads import HEADS, Parts, best_width, widened


class BayesRegressor(RegressorMixin, BayesEstimator):
    """A Bayesian neural network that predicts numbers from a table, with error bars.

    Columns may be numbers, texts, categories, dates or truth values, with missing values; numbers that are written as
    texts are read as numbers. Targets are standardised inside, and all results are in their own units.

    Args:
        method: Any method of slimbayes that can be trained, by name: ``"rank1"``, ``"batch_ensemble"``,
            ``"mean_field"``, ``"k_tied"``, ``"mc_dropout"``, ``"deep_ensemble"``, ``"deterministic"``, or your own.
        head: What each draw predicts: ``"gaussian"`` (a mean and a standard deviation), ``"gaussian_constant"`` (one
            standard deviation for all rows), ``"student_t"`` (4 degrees of freedom), ``"mixture"`` (three Gaussians)
            or ``"quantile"`` (15 quantiles, and what lies between them).
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
        model_: The trained ``BayesianModel``.
        n_iter_: Epochs whose weights were kept.
        history_: Scores of each epoch, and what came of them.
        n_features_in_: Number of columns.
        feature_names_in_: Their names, if they have names.
        width_: Factor of the draws' spread around their means that suits the held-out rows best.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(200, 2))
        >>> model = BayesRegressor(max_epochs=10, random_state=0).fit(X, X[:, 0])
        >>> mean, std = model.predict(X, return_std=True)
        >>> low, high = model.predict_interval(X, coverage=0.9)
        >>> bool((low < mean).all()), model.pred_dist(X).cdf(mean).shape
        (True, (200,))
    """

    def __init__(
        self,
        method: str = "batch_ensemble",
        *,
        head: str = "gaussian",
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
        self.head = head

    # ------------------------------------------------------------------ targets

    def _check_options(self) -> None:
        super()._check_options()
        check_choice("head", self.head, HEADS)

    def _likelihood(self) -> Likelihood:
        return HEADS[self.head].likelihood()

    def _outputs(self) -> int:
        return self._likelihood().outputs_for(1)

    def _check_targets(self, y: Any) -> NDArray[Any]:
        y = column_or_1d(y, warn=True)
        return _check_y(y, y_numeric=True, estimator=self).astype(np.float64)

    def _learn_targets(self, y: NDArray[Any], weights: NDArray[np.float64] | None) -> None:
        self.target_mean_, self.target_std_ = weighted_mean_and_std(y, weights)
        self.width_ = 1.0
        self.calibration_scores_: NDArray[np.float64] | None = None

    def _targets(self, y: NDArray[Any]) -> Tensor:
        return torch.from_numpy((y - self.target_mean_) / self.target_std_)

    def _tune(self, rows: Rows, y: NDArray[Any]) -> None:
        head = HEADS[self.head]
        parts = [
            head.parts(self.model_.likelihood, outputs) for outputs in self._outputs_for(rows.x.double().split(BLOCK))
        ]
        joined: Any = tuple(torch.cat(each, -1) for each in zip(*parts, strict=True))
        targets = rows.y.double().numpy()
        self.width_ = best_width(joined, head.kernel(), targets, rows.weights.double().numpy())

    def _calibrate(self, table: Columns, y: NDArray[Any]) -> None:
        mean, std = self._moments(table)
        self.calibration_scores_ = np.sort(np.abs(y - mean) / std)

    def calibrate(self, X: Any, y: Any) -> Self:
        """Remember how wrong predictions are on rows that were not trained on, for conformal intervals.

        Args:
            X: Rows that neither training nor early stopping has seen.
            y: Their targets.
        """
        table, y, _ = self._read_training(X, y, None, reset=False)
        self._calibrate(table, y)
        return self

    # ------------------------------------------------------------------ partial fit

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Go once through some rows, and on from the weights that are there.

        The first rows decide how columns are read and how targets are standardised.

        Args:
            X: A table.
            y: The target of each row.
            sample_weight: How often each row counts.
        """
        return self._partial_fit(X, y, sample_weight, first=not hasattr(self, "model_"))

    # ------------------------------------------------------------------ predictions

    def _parts(self, table: Columns) -> Any:
        """Yield weights, locations and scales, in the targets' units, for some rows at a time."""
        head = HEADS[self.head]
        for outputs in self._draws_of(table):
            parts: Parts = widened(head.parts(self.model_.likelihood, outputs), self.width_)
            weights, locations, scales = (part.numpy() for part in parts)
            yield weights, self.target_mean_ + self.target_std_ * locations, self.target_std_ * scales

    def _distributions(self, table: Columns) -> Any:
        kernel = HEADS[self.head].kernel()
        return (PredictiveDistribution(w, m, s, kernel) for w, m, s in self._parts(table))

    def _moments(self, table: Columns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        each = [(d.mean, d.std) for d in self._distributions(table)]
        mean, std = (np.concatenate(parts) for parts in zip(*each, strict=True))
        return mean, std

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean of each row, or ``(mean, std)``.

        Args:
            X: A table with the columns of training.
            return_std: Whether to return the standard deviation of the target too.
        """
        table = self._read(X, reset=False)
        if return_std:
            return self._moments(table)
        return np.concatenate([d.mean for d in self._distributions(table)])

    def pred_dist(self, X: Any) -> PredictiveDistribution:
        """Return the predicted distribution of each row: ``pdf``, ``cdf``, ``ppf``, ``sample``, ``mean``, ``std``.

        Args:
            X: A table with the columns of training.
        """
        parts = list(self._parts(self._read(X, reset=False)))
        weights, locations, scales = (np.concatenate(each, -1) for each in zip(*parts, strict=True))
        return PredictiveDistribution(weights, locations, scales, HEADS[self.head].kernel())

    def predict_quantiles(self, X: Any, q: Any = (0.05, 0.5, 0.95)) -> NDArray[np.float64]:
        """Return quantiles of each row: ``(rows,)`` for one level, ``(rows, levels)`` for several.

        Args:
            X: A table with the columns of training.
            q: Levels between 0 and 1.
        """
        return np.concatenate([d.ppf(q) for d in self._distributions(self._read(X, reset=False))])

    def predict_interval(
        self,
        X: Any,
        coverage: float = 0.9,
        conformal: bool = False,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        r"""Return the bounds of an interval that holds each row's target with a given probability.

        Args:
            X: A table with the columns of training.
            coverage: The probability.
            conformal: Whether to use intervals :math:`m \pm \hat q\, s` of split conformal prediction, as in
                ``sb.ConformalRegressor``: on average over rows like those of calibration, at least ``coverage`` hold
                the target, however wrong the model is. Needs ``calibration_fraction`` or ``calibrate``.
        """
        check_number("coverage", coverage, 0.0, 1.0, "Give the probability inside, such as 0.9.")
        table = self._read(X, reset=False)
        if conformal:
            if self.calibration_scores_ is None:
                raise ValueError(
                    "conformal=True needs rows that were not trained on. Fit with calibration_fraction=0.2, or call "
                    "calibrate(X, y) with rows of your own."
                )
            reach = conformal_quantile(torch.from_numpy(self.calibration_scores_), float(coverage))
            mean, std = self._moments(table)
            return mean - reach * std, mean + reach * std
        bounds = np.concatenate([d.ppf([(1 - coverage) / 2, (1 + coverage) / 2]) for d in self._distributions(table)])
        return bounds[:, 0], bounds[:, 1]

    def _uncertainty(self, table: Columns) -> Uncertainty:
        each = [(d.std, d.noise, d.ignorance) for d in self._distributions(table)]
        return Uncertainty(*(np.concatenate(parts) for parts in zip(*each, strict=True)))

    def sample(self, X: Any, n: int = 1, random_state: Any = None) -> NDArray[np.float64]:
        """Return targets that may be, ``(n, rows)``.

        Args:
            X: A table with the columns of training.
            n: How many for each row.
            random_state: A seed.
        """
        return self.pred_dist(X).sample(n, random_state)

    # ------------------------------------------------------------------ files

    def _fitted_state(self) -> dict[str, Any]:
        scores = self.calibration_scores_
        return {
            "target": [self.target_mean_, self.target_std_],
            "width": self.width_,
            "calibration_scores": None if scores is None else scores.tolist(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.target_mean_, self.target_std_ = state["target"]
        self.width_, scores = state["width"], state["calibration_scores"]
        self.calibration_scores_ = None if scores is None else np.array(scores)
