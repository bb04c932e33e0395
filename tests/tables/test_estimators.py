"""Estimators of tables: inputs of every kind, what predictions say, files, bad input."""

import datetime
import pickle
import time
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
import torch
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from slimbayes.methods.registry import trained_methods
from slimbayes.sklearn import BayesClassifier, BayesRegressor
from slimbayes.sklearn._heads import HEADS

SMALL = {"members": 2, "width": 16, "max_epochs": 5, "refit": False, "random_state": 0}
ROWS = 120


def numbers(rows=ROWS, seed=0):
    X = np.random.default_rng(seed).normal(size=(rows, 3))
    return X, 100 + 20 * X[:, 0] + np.abs(X[:, 1]) * np.random.default_rng(seed + 1).normal(size=rows)


def messy(rows=ROWS):
    """Return a table with columns of every kind, and a target that depends on them."""
    rng = np.random.default_rng(0)
    size, city = rng.normal(50, 10, rows), rng.choice(["Rome", "Oslo", "Bern"], rows)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), unit="D")
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(rows) < 0.1, np.nan, size),
            "rooms": [str(n) for n in rng.integers(1, 6, rows)],  # numbers written as texts
            "city": city,
            "kind": pd.Categorical(rng.choice(["flat", "house"], rows)),
            "sold": days,
            "new": rng.random(rows) < 0.5,
            "floor": pd.array(rng.integers(0, 9, rows), dtype="Int64"),
        }
    )
    frame.loc[3, "city"] = None
    frame.loc[4, "rooms"] = "?"
    frame.loc[5, "floor"] = pd.NA
    frame.loc[6, "sold"] = pd.NaT
    return frame, 3 * size + 40 * (city == "Oslo")


@pytest.fixture(scope="module")
def regressor():
    X, _ = numbers(400)
    y = 5 * X[:, 0] + 3 * np.abs(X[:, 1]) * np.random.default_rng(1).normal(size=400)
    return BayesRegressor(**{**SMALL, "max_epochs": 40, "learning_rate": 0.01}).fit(X, y)


@pytest.fixture(scope="module")
def classifier():
    X, _ = numbers(400)
    y = np.array(["a", "b", "c"])[(X[:, :1] > [-0.5, 0.5]).sum(1)]
    return BayesClassifier(**{**SMALL, "max_epochs": 40, "learning_rate": 0.01}).fit(X, y)


# ---------------------------------------------------------------------- inputs


def test_a_messy_frame_is_read_column_by_column():
    X, y = messy()
    model = BayesRegressor(**{**SMALL, "max_epochs": 40, "learning_rate": 0.02}).fit(X, y)
    kinds = [column.kind for column in model.encoder_.columns]
    assert kinds == ["number", "number", "categorical", "categorical", "date", "boolean", "number"]
    assert model.encoder_.numbers == 4
    assert model.feature_names_in_.tolist() == list(X.columns)
    assert model.score(X, y) > 0.8


def test_pandas_polars_and_columns_of_objects_are_the_same():
    X, y = messy()
    model = BayesRegressor(**SMALL).fit(X, y)
    expected = model.predict(X)
    other = pl.from_pandas(X)
    assert model.predict(other) == pytest.approx(expected, abs=1e-9)
    again = BayesRegressor(**SMALL).fit(other, y)
    assert again.feature_names_in_.tolist() == list(X.columns)
    assert again.predict(X) == pytest.approx(expected, abs=1e-9)
    objects = X.drop(columns=["kind", "sold", "floor"])
    of_frame = BayesRegressor(**SMALL).fit(objects, y).predict(objects)
    array = objects.to_numpy(dtype=object)
    assert BayesRegressor(**SMALL).fit(array, y).predict(array) == pytest.approx(of_frame, abs=1e-9)


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_sparse_is_dense(container):
    X, y = numbers()
    X = X * (X > 0)
    dense = BayesRegressor(**SMALL).fit(X, y)
    other = BayesRegressor(**SMALL).fit(container(X), y)
    assert other.predict(container(X)) == pytest.approx(dense.predict(X), abs=1e-9)


def test_dates_of_python_and_numbers_that_are_names():
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=n) for n in range(60)]
    X = pd.DataFrame({"day": days, "code": [n % 3 for n in range(60)]})
    model = BayesRegressor(**SMALL, categorical="code").fit(X, np.arange(60.0))
    assert [column.kind for column in model.encoder_.columns] == ["date", "categorical"]
    assert model.encoder_.columns[1].categories == ["0", "1", "2"]
    X["code"] = X["code"].astype(float)  # as pandas has it where a value is missing
    model.predict(X)


def test_unseen_categories_and_missing_values_raise_ignorance():
    X, y = messy(300)
    model = BayesRegressor(**{**SMALL, "members": 8, "max_epochs": 40}).fit(X, y)
    strange = X.assign(city="Atlantis")
    assert model.predict_uncertainty(strange).ignorance.mean() > 1.2 * model.predict_uncertainty(X).ignorance.mean()
    missing = X.assign(size=np.nan)
    assert np.isfinite(model.predict(missing)).all()


def test_ignorance_rises_out_of_range(regressor, classifier):
    X, _ = numbers()
    far = X + np.array([0, 0, 20.0])
    for model in (regressor, classifier):
        inside, outside = (model.predict_uncertainty(one).ignorance.mean() for one in (X, far))
        assert outside > 3 * inside


# ---------------------------------------------------------------------- targets and weights


def test_targets_are_standardised_inside():
    X, y = numbers()
    small, large = BayesRegressor(**SMALL).fit(X, y), BayesRegressor(**SMALL).fit(X, 1e6 + 1000 * y)
    mean, std = small.predict(X, return_std=True)
    mean_of_large, std_of_large = large.predict(X, return_std=True)
    assert mean_of_large == pytest.approx(1e6 + 1000 * mean, rel=1e-6)
    assert std_of_large == pytest.approx(1000 * std, rel=1e-3)


def test_a_weight_of_two_is_a_row_that_comes_twice():
    X, y = numbers(30)
    exact = {"method": "deterministic", "early_stopping": False, "batch_size": 100, "dtype": "float64"}
    options = {**SMALL, **exact, "members": None}
    weights = np.arange(30) % 3
    twice = BayesRegressor(**options).fit(X.repeat(weights, axis=0), y.repeat(weights))
    weighed = BayesRegressor(**options).fit(X, y, sample_weight=weights)
    assert weighed.predict(X) == pytest.approx(twice.predict(X), rel=1e-9)


def test_class_weights_move_probabilities():
    X, _ = numbers(300)
    y = (X[:, 0] + np.random.default_rng(5).normal(size=300) > 1.5).astype(int)
    plain = BayesClassifier(**{**SMALL, "max_epochs": 20}).fit(X, y).predict_proba(X)[:, 1].mean()
    balanced = BayesClassifier(**{**SMALL, "max_epochs": 20}, class_weight="balanced").fit(X, y)
    assert plain == pytest.approx(y.mean(), abs=0.1)
    assert balanced.predict_proba(X)[:, 1].mean() > plain + 0.1


# ---------------------------------------------------------------------- heads and distributions


@pytest.mark.parametrize("head", HEADS)
def test_distributions_are_distributions(head):
    X, y = numbers(200)
    model = BayesRegressor(**{**SMALL, "max_epochs": 20}, head=head).fit(X, y)
    d = model.pred_dist(X[:4])
    mean, std = model.predict(X[:4], return_std=True)
    assert (d.mean, d.std) == (pytest.approx(mean), pytest.approx(std))
    for q in (0.123, 0.567, 0.891):
        y_q, h = d.ppf(q), 1e-6 * std
        assert (d.cdf(y_q + h) - d.cdf(y_q - h)) / (2 * h) == pytest.approx(d.pdf(y_q), rel=1e-4)
    quantiles = model.predict_quantiles(X[:4], [0.05, 0.5, 0.95])
    assert (np.diff(quantiles) > 0).all()
    assert d.cdf(quantiles[:, 0]) == pytest.approx(np.full(4, 0.05), abs=1e-9)
    low, high = model.predict_interval(X[:4], coverage=0.9)
    assert (low, high) == (pytest.approx(quantiles[:, 0]), pytest.approx(quantiles[:, 2]))
    drawn = model.sample(X[:4], 4000, random_state=0)
    assert drawn.shape == (4000, 4)
    assert drawn.mean(0) == pytest.approx(mean, abs=4 * std.max() / np.sqrt(4000))
    assert drawn.std(0) == pytest.approx(std, rel=0.2)
    assert stats.kstest(d.cdf(drawn[0]), "uniform").pvalue > 1e-3
    u = model.predict_uncertainty(X[:4])
    assert np.hypot(u.noise, u.ignorance) == pytest.approx(u.total)


def test_noise_is_found_where_it_is(regressor):
    X, _ = numbers(400, seed=7)
    noise = regressor.predict_uncertainty(X).noise
    assert np.corrcoef(noise, np.abs(X[:, 1]))[0, 1] > 0.5
    found = regressor.explain_uncertainty(X, of="noise", n_repeats=2, random_state=0)
    assert found.importances_mean.argmax() == 1
    assert found.names == ["x0", "x1", "x2"]


def test_uncertainty_of_classes_adds_up(classifier):
    X, _ = numbers()
    u = classifier.predict_uncertainty(X)
    proba = classifier.predict_proba(X)
    assert u.total == pytest.approx(stats.entropy(proba, axis=1), abs=1e-6)
    assert u.noise + u.ignorance == pytest.approx(u.total, abs=1e-6)
    assert np.exp(classifier.predict_log_proba(X)) == pytest.approx(proba, abs=1e-6)
    drawn = classifier.sample(X, 500, random_state=0)
    assert (drawn == "b").mean(0) == pytest.approx(proba[:, 1], abs=0.12)


def test_conformal_predictions_cover(classifier):
    X, y = numbers(600)
    model = BayesRegressor(**SMALL, calibration_fraction=0.3).fit(X[:300], y[:300])
    low, high = model.predict_interval(X[300:], coverage=0.8, conformal=True)
    assert np.mean((low <= y[300:]) & (y[300:] <= high)) == pytest.approx(0.8, abs=0.08)
    new, labels = X[300:], np.array(["a", "b", "c"])[(X[300:, :1] > [-0.5, 0.5]).sum(1)]
    sets = clone_of(classifier).calibrate(new[:150], labels[:150]).predict_set(new[150:], coverage=0.8)
    right = sets[np.arange(150), np.searchsorted(classifier.classes_, labels[150:])]
    assert right.mean() >= 0.7
    with pytest.raises(ValueError, match="calibration_fraction=0.2"):
        BayesRegressor(**SMALL).fit(X[:50], y[:50]).predict_interval(X, conformal=True)


def clone_of(fitted):
    return pickle.loads(pickle.dumps(fitted))


# ---------------------------------------------------------------------- methods and networks


@pytest.mark.slow
@pytest.mark.parametrize("method", trained_methods())
def test_every_method_by_its_name(method, tmp_path):
    X, y = numbers(60)
    model = BayesRegressor(method, width=8, max_epochs=3, random_state=0).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    model.save(tmp_path / "model")
    assert BayesRegressor.load(tmp_path / "model").predict(X) == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {"embedding": "piecewise", "categorical": ["floor"]},
        {"embedding": "periodic"},
        {"residual": True, "depth": 3, "dropout": 0.1},
        {"method": "rank1", "family": "cauchy"},
        {"method": "batch_ensemble", "members": 32},
        {"method": "batch_ensemble", "method_options": {"factors": "output"}},
    ],
    ids=str,
)
def test_networks_and_options_survive_files(options, tmp_path):
    X, y = messy(60)
    model = BayesRegressor(**{**SMALL, **options, "max_epochs": 2}).fit(X, y)
    model.save(tmp_path / "model")
    again = BayesRegressor.load(tmp_path / "model")
    assert again.predict(X) == pytest.approx(model.predict(X), rel=1e-9)
    assert again.get_params() == model.get_params()


def test_a_member_has_a_head_of_its_own():
    X, y = numbers(60)
    model = BayesRegressor("batch_ensemble", members=8, width=16, max_epochs=1, random_state=0).fit(X, y)
    heads = [model.model_.member(k).head[0].weight for k in range(8)]
    bodies = [model.model_.member(k).body[2].weight for k in range(8)]
    assert torch.linalg.matrix_rank(torch.cat(heads)) == 8
    assert all(torch.equal(body, bodies[0]) for body in bodies)


# ---------------------------------------------------------------------- training


def test_refit_calibration_time_and_verbosity(capsys):
    X, y = numbers(200)
    model = BayesRegressor(**{**SMALL, "max_epochs": 4, "refit": True}, verbose=2).fit(X, y)
    assert "epoch 2: NLL" in capsys.readouterr().out
    assert 1 <= model.n_iter_ <= 4
    start = time.monotonic()
    quick = BayesRegressor(**{**SMALL, "max_epochs": 100_000, "patience": 100_000}, max_seconds=0.5).fit(X, y)
    assert time.monotonic() - start < 30
    assert not quick.history_.in_time
    assert capsys.readouterr().out == ""


def test_random_state_decides_and_leaves_torch_alone():
    X, y = numbers()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    one, two = (BayesRegressor(**SMALL).fit(X, y).predict(X) for _ in range(2))
    assert torch.equal(torch.rand(1), expected)
    other = BayesRegressor(**{**SMALL, "random_state": 1}).fit(X, y).predict(X)
    assert np.array_equal(one, two)
    assert not np.allclose(one, other)


def test_warm_start_and_partial_fit_go_on():
    X, y = numbers(200)
    model = BayesRegressor(**SMALL, warm_start=True).fit(X, y)
    first, weights = model.history_.best, model.model_
    assert model.fit(X, y).model_ is weights
    assert model.history_.best < first
    steps = BayesRegressor(**{**SMALL, "learning_rate": 0.01})
    scores = []
    for _ in range(12):
        for begin in range(0, 200, 50):
            steps.partial_fit(X[begin : begin + 50], y[begin : begin + 50])
        scores.append(steps.score(X, y))
    assert scores[-1] > max(scores[0], 0.5)
    again = clone_of(steps).partial_fit(X, y)
    assert again.n_iter_ == steps.n_iter_ + 1
    classes = BayesClassifier(**SMALL).partial_fit(X, y > 100, classes=[False, True])
    assert classes.predict(X).dtype == bool


# ---------------------------------------------------------------------- scikit-learn's tools


def test_pipelines_searches_pickle_and_routing(regressor):
    X, y = numbers(80)
    search = GridSearchCV(BayesRegressor(**SMALL), {"width": [8, 16]}, cv=2).fit(X, y)
    assert search.best_params_["width"] in (8, 16)
    pipe = make_pipeline(StandardScaler().set_output(transform="pandas"), BayesRegressor(**SMALL)).fit(X, y)
    assert pipe[-1].feature_names_in_.tolist() == ["x0", "x1", "x2"]
    mean, std = pipe.predict(X, return_std=True)
    assert mean.shape == std.shape == (80,)
    assert np.array_equal(clone_of(regressor).predict(X), regressor.predict(X))
    assert not hasattr(clone(regressor), "model_")
    with sklearn.config_context(enable_metadata_routing=True):
        routed = BayesRegressor(**SMALL).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scores = cross_val_score(routed, X, y, cv=2, params={"sample_weight": np.ones(80)})
    assert len(scores) == 2


def test_files_of_classifiers_hold_classes_and_run_no_code(classifier, tmp_path):
    X, _ = numbers()
    classifier.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json",
        "estimator.json",
        "model.safetensors",
    ]
    again = BayesClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict(X), classifier.predict(X))
    assert again.predict_proba(X) == pytest.approx(classifier.predict_proba(X), abs=1e-12)
    with pytest.raises(ValueError, match="holds a BayesClassifier"):
        BayesRegressor.load(tmp_path / "model")


# ---------------------------------------------------------------------- bad input


BAD = {
    "NaN target": (lambda X, y: (X, np.where(np.arange(ROWS) == 3, np.nan, y)), "Input y contains NaN"),
    "infinite target": (lambda X, y: (X, np.where(np.arange(ROWS) == 3, np.inf, y)), "infinity"),
    "infinity": (lambda X, y: (np.where(X[5, 1] == X, np.inf, X), y), "contains infinity"),
    "too large": (lambda X, y: (np.where(X[5, 1] == X, 1e300, X), y), "too large"),
    "other lengths": (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
    "no rows": (lambda X, y: (X[:0], y[:0]), "0 sample"),
    "no columns": (lambda X, y: (X[:, :0], y), "0 feature"),
    "two columns of one name": (lambda X, y: (pd.DataFrame(X, columns=["a", "b", "a"]), y), "several called a"),
    "one axis": (lambda X, y: (X[:, 0], y), "Expected 2D array"),
    "a number with a stray text": (
        lambda X, y: (pd.DataFrame({"a": [*map(str, range(ROWS - 1)), "12%"]}), y),
        "'12%' in row 119",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_an_error(case):
    change, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        BayesRegressor(**SMALL).fit(*change(*numbers()))


ODD = {
    "3 rows": lambda X, y: (X[:3], y[:3]),
    "1 row": lambda X, y: (X[:1], y[:1]),
    "constant column": lambda X, y: (np.column_stack([X, np.full(ROWS, 0.1)]), y),
    "empty column": lambda X, y: (np.column_stack([X, np.full(ROWS, np.nan)]), y),
    "nothing but an empty column": lambda X, y: (np.full((ROWS, 1), np.nan), y),
    "constant target": lambda X, y: (X, np.full(ROWS, 7.0)),
    "missing targets' type": lambda X, y: (X, pd.Series(y, dtype="Float64")),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_input_works(case):
    X, y = ODD[case](*numbers())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BayesRegressor(**SMALL).fit(X, y)
        mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()


def test_other_columns_than_those_of_training(regressor):
    X, y = numbers()
    with pytest.raises(ValueError, match="expecting 3 features"):
        regressor.predict(X[:, :2])
    frame = pd.DataFrame(X, columns=list("abc"))
    named = BayesRegressor(**SMALL).fit(frame, y)
    with pytest.raises(ValueError, match="feature names should match"):
        named.predict(frame[["b", "a", "c"]])
    with pytest.raises(NotFittedError):
        BayesRegressor().predict(X)


def test_one_class_and_unknown_classes():
    X, _ = numbers()
    with pytest.raises(ValueError, match="greater than one; got 1 class"):
        BayesClassifier(**SMALL).fit(X, np.zeros(ROWS))
    model = BayesClassifier(**SMALL).partial_fit(X, np.arange(ROWS) % 2)
    with pytest.raises(ValueError, match=r"\[7\]"):
        model.partial_fit(X, np.full(ROWS, 7))
    with pytest.raises(ValueError, match="Unknown label type"):
        BayesClassifier(**SMALL).fit(X, X[:, 0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "rank2"}, ["`method`", "'rank1'"]),
        ({"method": "laplace"}, ["`method`", "'laplace'", "'rank1'"]),
        ({"head": "gauss"}, ["`head`", "'gaussian'"]),
        ({"method_options": {"member": 3}}, ["'member'"]),
        ({"embedding": "linear"}, ["`embedding`", "'piecewise'"]),
        ({"refit": "always"}, ["`refit`", "'auto'"]),
        ({"learning_rate": 0.0}, ["`learning_rate`", "0.0"]),
        ({"categorical": ["x9"]}, ["`categorical`", "x9"]),
        ({"categorical": [9]}, ["`categorical`", "9"]),
    ],
)
def test_wrong_arguments_are_named(options, words):
    X, y = numbers(30)
    with pytest.raises(ValueError) as error:  # noqa: PT011
        BayesRegressor(**options).fit(X, y)
    for word in words:
        assert word in str(error.value)
