"""Predictions for a user's own files, against the draws of the model and formulas of NumPy and SciPy."""

import functools
import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import special, stats
from scipy.optimize import brentq

from slimbayes.data.preparation import Arrays, Raw
from slimbayes.data.registry import load_data
from slimbayes.training import Run, fit, predicting
from slimbayes.training.predicting import predict_file

SAMPLES, SEED, LEVEL = 3, 7, 0.8
METHODS = {
    "rank1": {"name": "rank1", "members": 3},
    "batch_ensemble": {"name": "batch_ensemble", "members": 3},
    "mean_field": {"name": "mean_field", "init_std": 0.1},
    "k_tied": {"name": "k_tied", "estimator": "local"},
    "deterministic": "deterministic",
}


def train(folder, data, method="rank1", net=None, **more):
    net = net or {"name": "mlp", "hidden": [16]}
    return fit({"data": data, "net": net, "method": METHODS[method], "epochs": 2, **more}, folder, quiet=True)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Runs on the digits by method, each trained when it is first asked for."""
    folder = tmp_path_factory.mktemp("digits")
    return functools.cache(lambda method: train(folder / method, "digits", method))


@pytest.fixture(scope="module")
def images():
    return load_data("digits").test.inputs[0][:40].numpy()


def draws_of(run, inputs, which="best"):
    """All draws at once, of weights that the examples share; ``(draws, examples, outputs)``, and the noise."""
    model = run.model(which)
    noise = "example" if run.config.method.name == "deterministic" else "shared"
    with torch.no_grad():
        generator = torch.Generator().manual_seed(SEED)
        draws = model(torch.from_numpy(inputs), samples=SAMPLES, noise=noise, generator=generator)
        rho = getattr(model.likelihood, "rho", None)
    return draws.double().numpy(), None if rho is None else np.log1p(np.exp(rho.double().item())) + 1e-7, model.members


def predicted(run, path, **options):
    return predict_file(run, path, **{"samples": SAMPLES, "seed": SEED, "level": LEVEL, **options})


def check(columns, name, expected):
    """Single precision of the network is what the two computations may differ by."""
    np.testing.assert_allclose(columns[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


def check_classes(columns, probs, members, classes):
    """Compare with ``(draws, examples, classes)``, member-major."""
    mean = probs.mean(0)
    assert columns["label"].tolist() == [classes[number] for number in mean.argmax(-1)]
    check(columns, "confidence", mean.max(-1))
    check(columns, "entropy", stats.entropy(mean, axis=-1))
    expected = stats.entropy(probs, axis=-1).mean(0)
    check(columns, "expected_entropy", expected)
    check(columns, "mutual_information", stats.entropy(mean, axis=-1) - expected)
    voters = probs if members == 1 else probs.reshape(members, -1, *mean.shape).mean(1)
    pairs = [one.argmax(-1) != other.argmax(-1) for one, other in itertools.combinations(voters, 2)]
    check(columns, "disagreement", np.mean(pairs, 0) if pairs else np.zeros(len(mean)))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_every_column_of_classes(tmp_path, digits, images, method, suffix):
    run, path = digits(method), tmp_path / f"x.{suffix}"
    np.savez(path, x=images) if suffix == "npz" else np.save(path, images)
    columns = predicted(run, path)
    draws, _, members = draws_of(run, images)
    probs = special.softmax(draws, -1)
    figures = ["entropy", "expected_entropy", "mutual_information", "disagreement"]
    assert list(columns) == ["name", "label", "confidence", *(f"p_{number}" for number in range(10)), *figures]
    assert columns["name"].tolist() == [str(row) for row in range(40)]
    check_classes(columns, probs, members, [str(number) for number in range(10)])
    for number in range(10):
        check(columns, f"p_{number}", probs.mean(0)[:, number])


def test_best_and_last_checkpoints(tmp_path, images):
    # The second epoch is spoilt by its learning rate, so that the first is the best.
    spoilt = {"name": "step", "at": [1], "factor": 1000}
    run = train(tmp_path / "run", "digits", schedule=spoilt)
    assert run.checkpoints.path("best") != run.checkpoints.path("last")
    np.save(tmp_path / "x.npy", images)
    for which in ("best", "last"):
        draws, _, _ = draws_of(run, images, which)
        check(predicted(run, tmp_path / "x.npy", which=which), "p_3", special.softmax(draws, -1).mean(0)[:, 3])


@pytest.mark.parametrize("method", ["rank1", "mean_field", "deterministic"])
def test_predictions_depend_on_neither_blocks_nor_other_examples(tmp_path, digits, images, method, monkeypatch):
    run = digits(method)
    np.save(tmp_path / "x.npy", images)
    np.save(tmp_path / "reversed.npy", images[::-1])
    np.save(tmp_path / "one.npy", images[17:18])
    whole, seen = predicted(run, tmp_path / "x.npy"), []
    reversed_ = predicted(run, tmp_path / "reversed.npy")
    one = predicted(run, tmp_path / "one.npy", batch_size=1)
    monkeypatch.setattr(predicting, "BLOCK", 15)
    in_blocks = predicted(run, tmp_path / "x.npy", batch_size=4, progress=lambda *done: seen.append(done))
    assert seen == [(15, 40), (30, 40), (40, 40)]
    for name, values in whole.items():
        if values.dtype.kind == "f":
            check(in_blocks, name, values)
            check(reversed_, name, values[::-1])
            check(one, name, values[17:18])
        elif name == "label":
            assert in_blocks[name].tolist() == reversed_[name][::-1].tolist() == values.tolist()
    assert in_blocks["name"].tolist() == [str(row) for row in range(40)]


def test_blocks_shrink_with_large_inputs_and_many_draws(tmp_path, digits, images, monkeypatch):
    np.save(tmp_path / "x.npy", images)
    monkeypatch.setattr(predicting, "NUMBERS", 640)
    for samples, block in ((1, 10), (4, 640 // (3 * 4 * 10))):  # 64 pixels; 3 members, 10 classes
        seen = {}
        predicted(digits("rank1"), tmp_path / "x.npy", samples=samples, progress=seen.setdefault)
        assert list(seen) == [*range(block, 40, block), 40]


def test_seeds(tmp_path, digits, images):
    np.save(tmp_path / "x.npy", images)
    first, again, other = (predicted(digits("rank1"), tmp_path / "x.npy", seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["confidence"], other["confidence"])


# ---------------------------------------------------------------------- regression


def check_regression(columns, draws, noise, mean, std, suffix=""):
    """Compare with ``(draws, examples)`` in standardised units and the noise there."""
    centres, noise = draws * std + mean, noise * std
    check(columns, f"mean{suffix}", centres.mean(0))
    check(columns, f"aleatoric_std{suffix}", np.full(draws.shape[1], noise))
    check(columns, f"epistemic_std{suffix}", centres.std(0))
    check(columns, f"std{suffix}", np.sqrt(noise**2 + centres.var(0)))
    for name, q in (("low", (1 - LEVEL) / 2), ("high", (1 + LEVEL) / 2)):
        found = [_quantile(some, noise, q) for some in centres.T]
        check(columns, name + suffix, found)


def _quantile(centres, noise, q):
    low, high = centres.min() - 9 * noise, centres.max() + 9 * noise
    return brentq(lambda y: stats.norm.cdf(y, centres, noise).mean() - q, low, high)


@pytest.mark.parametrize("method", ["rank1", "mean_field", "deterministic"])
def test_diabetes_in_its_own_units(tmp_path, method):
    run, data = train(tmp_path / "run", "diabetes", method), load_data("diabetes")
    rows = data.test.inputs[0].numpy()
    np.savez(tmp_path / "x.npz", x=rows)
    columns = predicted(run, tmp_path / "x.npz")
    assert list(columns) == ["name", "mean", "std", "aleatoric_std", "epistemic_std", "low", "high"]
    seen = data.train.inputs[0].numpy()
    draws, noise, _ = draws_of(run, ((rows - seen.mean(0)) / seen.std(0)).astype(np.float32))
    check_regression(columns, draws[..., 0], noise, data.task.target_mean, data.task.target_std)
    if method == "deterministic":
        truth = data.test.targets.numpy() * data.task.target_std + data.task.target_mean
        rmse = np.sqrt(np.mean((columns["mean"] - truth) ** 2))
        assert rmse == pytest.approx(run.result["test"]["rmse"], rel=1e-5)


@pytest.fixture(scope="module")
def houses(tmp_path_factory):
    """A table of houses with missing sizes and a price far from 0, and its columns."""
    folder, rng = tmp_path_factory.mktemp("houses"), np.random.default_rng(0)
    sizes, towns = rng.normal(100, 20, 60), rng.choice(["Bath", "York"], 60)
    prices = 1e6 + 3000 * sizes + 5e4 * (towns == "York")
    sizes[[3, 40]] = np.nan
    part = np.where(np.arange(60) < 40, "train", np.where(np.arange(60) < 50, "validation", "test"))
    dear = np.where(prices > np.median(prices), "dear", "cheap")
    rows = zip(sizes.tolist(), towns, prices.tolist(), dear, part, strict=True)
    lines = ["size,town,price,worth,part", *(",".join(map(str, row)) for row in rows)]
    (folder / "houses.csv").write_text("\n".join(lines) + "\n")
    return folder / "houses.csv", sizes, towns, prices


def house_features(sizes, towns, seen):
    """What the network gets: the size, whether it was missing, Bath, York, any other town."""
    scaled = (sizes - np.nanmean(seen)) / np.nanstd(seen)
    missing = np.isnan(sizes)
    other = ~np.isin(towns, ["Bath", "York"])
    features = [np.where(missing, 0, scaled), missing, towns == "Bath", towns == "York", other]
    return np.stack(features, 1).astype(np.float32)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_of_real_targets(tmp_path, houses, suffix):
    path, sizes, _, prices = houses
    data = {"name": "table", "path": str(path), "target": "price", "ignore": ["worth"], "split_column": "part"}
    run = train(tmp_path / "run", data)
    new_sizes, new_towns = np.array([80.0, np.nan, 140.0]), np.array(["York", "Bath", "Ely"])
    if suffix == "csv":  # columns in another order, and one that is not known
        (tmp_path / "new.csv").write_text("town,colour,size\nYork,red,80\nBath,,\nEly,blue,140\n")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({"town": new_towns, "size": pa.array([80.0, None, 140.0])})
        pq.write_table(table, tmp_path / "new.parquet")
    columns = predicted(run, tmp_path / f"new.{suffix}")
    draws, noise, _ = draws_of(run, house_features(new_sizes, new_towns, sizes[:40]))
    assert columns["name"].tolist() == ["0", "1", "2"]
    check_regression(columns, draws[..., 0], noise, prices[:40].mean(), prices[:40].std())


@pytest.mark.parametrize("task", ["bernoulli", "categorical"])
def test_a_table_of_named_classes(tmp_path, houses, task):
    path, sizes, towns, _ = houses
    data = {"name": "table", "path": str(path), "target": "worth", "ignore": ["price"], "split_column": "part"}
    run = train(tmp_path / "run", {**data, "task": task})
    columns = predicted(run, path)
    draws, _, members = draws_of(run, house_features(sizes, towns, sizes[:40]))
    if task == "bernoulli":
        yes = special.expit(draws[..., 0])
        probs = np.stack([1 - yes, yes], -1)
        check(columns, "p", yes.mean(0))
        assert "p_dear" not in columns
    else:
        probs = special.softmax(draws, -1)
        check(columns, "p_cheap", probs.mean(0)[:, 0])
        check(columns, "p_dear", probs.mean(0)[:, 1])
    check_classes(columns, probs, members, ["cheap", "dear"])


def test_several_targets_have_numbered_columns(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 4)).astype(np.float32), rng.normal(5, 2, (50, 2))
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y)
    data = {"name": "arrays", "path": str(tmp_path / "data.npz"), "validation": 10}
    run = train(tmp_path / "run", data)
    np.save(tmp_path / "x.npy", x)
    columns = predicted(run, tmp_path / "x.npy")
    draws, noise, _ = draws_of(run, x)
    for number in range(2):
        check_regression(
            columns, draws[..., number], noise, run.task.target_mean, run.task.target_std, suffix=f"_{number}"
        )
    np.savez(tmp_path / "labels.npz", x_train=x, y_train=(y > 5).astype(int))
    run = train(tmp_path / "labelled", {"name": "arrays", "path": str(tmp_path / "labels.npz"), "task": "bernoulli"})
    columns = predicted(run, tmp_path / "x.npy")
    yes = special.expit(draws_of(run, x)[0]).mean(0)
    for number in range(2):
        check(columns, f"p_{number}", yes[:, number])
        assert columns[f"label_{number}"].tolist() == (yes[:, number] > 0.5).tolist()


def test_a_folder_of_images(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for kind, shade in (("dark", 60), ("light", 190)):
        (tmp_path / "train" / kind).mkdir(parents=True)
        for number in range(6):
            pixels = rng.integers(shade - 50, shade + 50, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "train" / kind / f"{number}.png")
    data = {"name": "image_folder", "path": str(tmp_path / "train"), "size": 8, "channels": 1, "zoom": 1.0}
    run = train(tmp_path / "run", {**data, "augment": False, "validation": 2, "test": 2})
    folder = tmp_path / "new"
    folder.mkdir()
    pixels = {name: rng.integers(0, 256, (8, 8), dtype=np.uint8) for name in ("b.png", "a.png", "c.png")}
    for name, one in pixels.items():
        Image.fromarray(one).save(folder / name)
    columns = predicted(run, folder)
    assert columns["name"].tolist() == ["a.png", "b.png", "c.png"]
    inputs = np.stack([pixels[name] for name in columns["name"]])[:, None].astype(np.float32) / 127.5 - 1
    draws, _, members = draws_of(run, inputs)
    check_classes(columns, special.softmax(draws, -1), members, ["dark", "light"])


def test_a_run_of_another_process(tmp_path):
    """Reading a run must not rely on what training had imported."""
    run = train(tmp_path / "run", "iris", "deterministic")
    np.save(tmp_path / "x.npy", np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]))
    program = (
        "import sys; from slimbayes.training import Run; from slimbayes.training.predicting import predict_file; "
        "print(predict_file(Run.open(sys.argv[1]), sys.argv[2])['confidence'].tolist())"
    )
    command = [sys.executable, "-c", program, str(run.folder), str(tmp_path / "x.npy")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == f"{predict_file(run, tmp_path / 'x.npy')['confidence'].tolist()}\n"


# ---------------------------------------------------------------------- what cannot be predicted


def _save(content):
    return lambda path: np.save(path, content)


BAD_FILES = {
    "missing": ("x.npy", lambda path: None, "There is no file or folder .*x.npy"),
    "suffix": ("x.txt", lambda path: path.write_text("1 2"), "x.txt to be an .npy or .npz file"),
    "shape": ("x.npy", _save(np.zeros((2, 5))), r"x.npy: .* shape \(5,\) of float32; .* shape \(1, 8, 8\)"),
    "type": ("x.npy", _save(np.zeros((2, 1, 8, 8), np.uint8)), "x.npy: .* of uint8"),
    "huge": ("x.npy", _save(np.full((1, 1, 8, 8), 3e38)), "x.npy: the predictions of '0' are not finite"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files(tmp_path, digits, case):
    name, write, message = BAD_FILES[case]
    write(tmp_path / name)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        predicted(digits("rank1"), tmp_path / name)


RAW = {
    "empty": ([], "x.npy holds no examples"),
    "nan": ([0.0, np.nan, 1.0], "x.npy: the inputs of 'b' are not finite"),
    "infinite": ([0.0, 0.0, np.inf], "x.npy: the inputs of 'c' are not finite"),
}


@pytest.mark.parametrize("case", RAW)
def test_what_a_reader_lets_through(tmp_path, digits, case, monkeypatch):
    values, message = RAW[case]
    path = tmp_path / "x.npy"
    path.write_bytes(b"")

    class Reader(Arrays):
        def read(self, path):
            images = torch.tensor(values).view(-1, 1, 1, 1).expand(-1, 1, 8, 8)
            return Raw((images,), list("abc")[: len(values)])

    monkeypatch.setattr(Run, "preparation", Reader())
    with pytest.raises(ValueError, match=message):
        predicted(digits("rank1"), path)


@pytest.mark.parametrize(
    "option", [{"samples": -1}, {"seed": -1}, {"level": 1.0}, {"which": "first"}, {"batch_size": 0}], ids=str
)
def test_bad_arguments(tmp_path, digits, option):
    (name,) = option
    with pytest.raises(ValueError, match=f"`{name}`"):
        predicted(digits("rank1"), tmp_path / "not-read.npy", **option)


def test_folders_without_a_checkpoint(tmp_path, digits, images):
    with pytest.raises(FileNotFoundError, match="There is no run in"):
        Run.open(tmp_path)
    begun, run = Run(tmp_path / "begun"), digits("rank1")
    begun.folder.mkdir()
    for name in ("config.yaml", "run.json"):
        (begun.folder / name).write_text((run.folder / name).read_text())
    np.save(tmp_path / "x.npy", images)
    with pytest.raises(FileNotFoundError, match="no epoch has been completed yet"):
        predicted(begun, tmp_path / "x.npy")
