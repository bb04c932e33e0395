"""The page for one prediction, against NumPy, ``predict_file`` and a browser."""

import math
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from slimbayes.cli.app import app
from slimbayes.data import Task, load_data
from slimbayes.likelihoods import Bernoulli, Gaussian
from slimbayes.prediction import Prediction
from slimbayes.report._density import BASE, HEIGHT, WIDTH, density_of, round_ticks
from slimbayes.report._prediction_parts import parts_of, probability, share
from slimbayes.training import fit
from slimbayes.training.predicting import predict_file

jinja2 = pytest.importorskip("jinja2")
from slimbayes.report.prediction_page import write_prediction_page  # noqa: E402


class Page(HTMLParser):
    """Tags with their attributes, and the text that people see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.words, self.silent = [], [], 0
        self.feed(html)
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.silent += tag in ("style", "script")

    def handle_endtag(self, tag):
        self.silent -= tag in ("style", "script")

    def handle_data(self, data):
        self.words += [] if self.silent else [data]

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


# ---------------------------------------------------------------------- figures


def entropy(p):
    return float(-(p * np.log(p)).sum())


@pytest.mark.parametrize("classes", [3, 20])
def test_parts_of_classes_by_hand(classes):
    logits = torch.randn(8, 1, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    (part,) = parts_of(Prediction(logits, members=2), Task("categorical", classes, (4,)))
    draws = np.exp(logits[:, 0].numpy())
    draws /= draws.sum(1, keepdims=True)
    mean = draws.mean(0)
    assert part.total == pytest.approx(entropy(mean))
    assert part.data == pytest.approx(np.mean([entropy(p) for p in draws]))
    assert part.data + part.model == pytest.approx(part.total)
    assert part.most == pytest.approx(math.log(classes))
    assert (part.label, part.confidence) == (str(mean.argmax()), pytest.approx(mean.max()))
    assert part.labels == [str(draws[:4].mean(0).argmax()), str(draws[4:].mean(0).argmax())]
    for bars, own in [(part.bars, draws), (part.members[0], draws[:4]), (part.members[1], draws[4:])]:
        assert sum(bar.value for bar in bars) == pytest.approx(1)
        named = [bar for bar in bars if "others" not in bar.name]
        for bar in named:
            column = own[:, int(bar.name)]
            assert bar[1:4] == pytest.approx((column.mean(), column.min(), column.max()))
            assert bar.chosen == (int(bar.name) == own.mean(0).argmax())
        rest = own[:, [c for c in range(classes) if str(c) not in {bar.name for bar in named}]].sum(1)
        assert sum(bar.value for bar in bars[len(named) :]) == pytest.approx(rest.mean())
    assert {*part.labels, part.label} <= {bar.name for bar in part.bars}
    assert len(part.bars) <= 9


def test_parts_of_several_yes_or_no():
    logits = torch.randn(4, 1, 3, dtype=torch.float64)
    parts = parts_of(Prediction(logits, Bernoulli(), members=2), Task("bernoulli", 3, (2,)))
    yes = torch.sigmoid(logits[:, 0]).mean(0)
    assert len(parts) == 3
    for part, p in zip(parts, yes.tolist(), strict=True):
        assert {bar.name: bar.value for bar in part.bars} == pytest.approx({"0": 1 - p, "1": p})


def test_parts_of_a_real_value_by_hand():
    means = torch.tensor([0.0, 1.0, 2.0, 5.0], dtype=torch.float64)
    task = Task("gaussian", 1, (2,), target_mean=10.0, target_std=2.0)
    (part,) = parts_of(Prediction(means.view(4, 1, 1), Gaussian(initial=0.5), members=2), task)
    assert part.mean == pytest.approx(10 + 2 * 2.0)
    assert part.data == pytest.approx(2 * 0.5)
    assert part.model == pytest.approx(2 * means.std(correction=0).item())
    assert part.std**2 == pytest.approx(part.data**2 + part.model**2)
    assert part.model_share == pytest.approx(part.model**2 / part.std**2)
    assert [member.mean for member in part.members] == pytest.approx([11.0, 17.0])
    assert [member.spread for member in part.members] == pytest.approx([1.0, 3.0])
    centres = 10 + 2 * means
    inside = [torch.special.ndtr((bound - centres) / 1.0).mean().item() for bound in (part.low, part.high)]
    assert inside == pytest.approx([0.05, 0.95])


def test_density_is_that_of_the_normal_distribution():
    drawn = density_of(torch.tensor([3.0, 3.0]), torch.tensor([2.0, 2.0]), 2, (1.0, 5.0))
    points = np.array([point.split(",") for point in drawn.members[0].split()], float)
    z = (points[:, 0] - WIDTH / 2) / (points[-1, 0] - WIDTH / 2) * 3.5
    np.testing.assert_allclose((BASE - points[:, 1]) / (BASE - points[:, 1]).max(), np.exp(-(z**2) / 2), atol=0.005)
    assert drawn.means == [WIDTH / 2] * 2
    assert sum(drawn.interval) == pytest.approx(WIDTH)
    assert points.min() >= 0
    assert points[:, 0].max() <= WIDTH
    assert points[:, 1].max() <= HEIGHT


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_density_without_noise_or_spread_is_finite(noise):
    drawn = density_of(torch.full((3,), 7.0), torch.full((3,), noise), 1, (7.0, 7.0))
    assert "nan" not in drawn.area
    assert drawn.members == []


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.13, 0.97, [0.2, 0.4, 0.6, 0.8]), (-10, 10, [-10, -5, 0, 5, 10]), (1e6, 1e6 + 3, [1e6 + i for i in range(4)])],
)
def test_ticks_are_round(low, high, expected):
    assert round_ticks(low, high) == pytest.approx(expected)


def test_words_of_extremes():
    assert [probability(p) for p in (0.0, 1e-5, 0.25, 0.99999, 1.0)] == [
        *("0.000", "below 0.001", "0.250", "above 0.999", "1.000")
    ]
    assert [share(p) for p in (0.0, 0.001, 0.5, 0.999, 1.0)] == ["0%", "less than 1%", "50%", "more than 99%", "100%"]


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ([1, 1], "Both members say 1."),
        ([1, 1, 1], "All 3 members say 1."),
        ([1, 1, 2, 1, 0, 0], "3 of 6 members say 1; 2 say 0 and 1 says 2."),
        ([*[1] * 3, *range(20, 30)], "3 of 13 members say 1; 1 says 20, 1 says 21, 1 says 22, 1 says 23, 1 says 24, "
         "1 says 25 and 4 more."),
    ],
)  # fmt: skip
def test_what_members_say_when_classes_are_numbers(choices, words):
    logits = torch.full((len(choices), 1, 30), -2.0)
    for member, choice in enumerate(choices):
        logits[member, 0, choice] = 2.0
    (part,) = parts_of(Prediction(logits, members=len(choices)), Task("categorical", 30, (4,)))
    assert dict(part.findings)["Members"] == words


# ---------------------------------------------------------------------- pages


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A run, and a file of three images."""
    folder = tmp_path_factory.mktemp("digits")
    config = {"data": {"name": "digits", "train_limit": 300}, "net": "mlp", "method": {"members": 3}, "epochs": 1}
    run = fit(config, folder / "run", quiet=True)
    (images,), _ = load_data("digits").test.fetch(torch.arange(3))
    np.savez(folder / "three.npz", x=images.numpy())
    return run, folder / "three.npz"


@pytest.fixture(scope="module")
def diabetes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diabetes")
    run = fit({"data": "diabetes", "net": "mlp", "method": {"members": 2}, "epochs": 1}, folder / "run", quiet=True)
    (rows,), _ = load_data("diabetes").test.fetch(torch.arange(2))
    np.save(folder / "two.npy", rows.numpy())
    return run, folder / "two.npy"


@pytest.fixture(params=["digits", "diabetes"])
def either(request):
    return request.getfixturevalue(request.param)


def test_the_page_says_what_predict_says(digits, tmp_path):
    run, file = digits
    page = Page(write_prediction_page(run, file, tmp_path / "page.html", row=2, samples=4, seed=5).read_text())
    columns = {name: values[2] for name, values in predict_file(run, file, samples=4, seed=5).items()}
    assert f"{columns['label']}, with probability {columns['confidence']:.3f}" in page.text
    for figure, words in [("entropy", "Together:"), ("expected_entropy", "Data:"), ("mutual_information", "Model:")]:
        assert f"{words} {columns[figure]:.3f} nats" in page.text
    assert len([svg for svg in page.all("svg") if svg["class"] == "classes"]) == 1 + 3
    pictures = page.all("img")
    assert len(pictures) == 1 + 6
    assert all(picture["alt"] and picture["src"].startswith("data:image/png") for picture in pictures)


def test_the_page_of_a_real_value_is_in_its_units(diabetes, tmp_path):
    run, file = diabetes
    page = Page(write_prediction_page(run, file, tmp_path / "page.html", row="1", samples=3).read_text())
    columns = {name: values[1] for name, values in predict_file(run, file, samples=3).items()}
    assert f"{columns['mean']:.4g}, give or take {columns['std']:.3g}" in page.text
    assert f"between {columns['low']:.4g} and {columns['high']:.4g}" in page.text
    assert f"Data: {columns['aleatoric_std']:.3g}" in page.text
    assert f"Model: {columns['epistemic_std']:.3g}" in page.text
    assert "Nearest training examples" in page.text
    assert "Nearest training classes" not in page.text


def test_a_training_example_is_its_own_neighbour(digits, tmp_path):
    """And all 300 training examples were looked at, no others."""
    run, _ = digits
    (image,), target = load_data("digits").train.fetch(torch.tensor([123]))
    np.save(tmp_path / "one.npy", image.numpy())
    text = Page(write_prediction_page(run, tmp_path / "one.npy", tmp_path / "page.html").read_text()).text
    assert re.search(f"Nearest training examples Class {int(target)} Distance 0 Row 123", text)
    assert "All 300 training examples" in text


def test_every_drawing_has_words_and_every_reference_a_target(either, tmp_path):
    run, file = either
    page = Page(write_prediction_page(run, file, tmp_path / "page.html", samples=2).read_text())
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for svg in page.all("svg"):
        assert svg["role"] == "img"
        assert set(svg["aria-labelledby"].split()) <= set(ids)
    for link in page.all("a"):
        assert link["href"].removeprefix("#") in ids
    assert "nan" not in re.sub(r"base64,[^\"]*", "", (tmp_path / "page.html").read_text()).lower()


def test_without_neighbours_or_data(digits, tmp_path, monkeypatch):
    run, file = digits
    page = write_prediction_page(run, file, tmp_path / "page.html", neighbours=0).read_text()
    assert "Nearest" not in page

    def gone(*args, **kwargs):
        from slimbayes.data.folders import MissingData

        raise MissingData("Found no <digits>.")

    monkeypatch.setattr("slimbayes.report._near_training.load_data", gone)
    assert "Found no &lt;digits&gt;." in write_prediction_page(run, file, tmp_path / "page.html").read_text()


def test_names_are_escaped(tmp_path):
    pytest.importorskip("pyarrow")
    bad = "<script>alert(1)</script>"
    rows = "".join(f"{i},{'ab'[i % 2]},{bad if i % 3 else 'fine'}\n" for i in range(40))
    (tmp_path / "my.csv").write_text(f"<b>age,&amp;,kind\n{rows}")
    data = {"name": "table", "path": str(tmp_path / "my.csv"), "target": "kind"}
    run = fit({"data": data, "net": "mlp", "epochs": 1}, tmp_path / "run", quiet=True)
    page = write_prediction_page(run, tmp_path / "my.csv", tmp_path / "page.html").read_text()
    assert bad not in page
    assert "<b>" not in page
    assert bad in Page(page).text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"row": 3}, "`row` to be from 0 to 2"),
        ({"row": "two"}, "`row` to be one of '0', '1', '2'"),
        ({"samples": -1}, "`samples`"),
        ({"neighbours": -1}, "`neighbours`"),
        ({"which": "first"}, "`which`"),
        ({"level": 2.0}, "`level`"),
    ],
)
def test_wrong_arguments_are_named(digits, tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        write_prediction_page(*digits, tmp_path / "page.html", **options)
    assert not list(tmp_path.iterdir())


def test_wrong_inputs_are_named(digits, tmp_path):
    run, _ = digits
    np.save(tmp_path / "wrong.npy", np.zeros((1, 5), np.float32))
    with pytest.raises(ValueError, match=r"trained on shape \(1, 8, 8\)"):
        write_prediction_page(run, tmp_path / "wrong.npy", tmp_path / "page.html")
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        write_prediction_page(run, tmp_path / "none.npy", tmp_path / "page.html")


# ---------------------------------------------------------------------- commands and browsers


def test_the_command_writes_the_page(digits, tmp_path):
    run, file = digits
    args = ["report", str(run.folder), "--input", str(file), "--row", "1", "--samples", "2"]
    done = CliRunner().invoke(app, [*args, "--out", str(tmp_path / "page.html")])
    assert (done.exit_code, str(tmp_path / "page.html") in done.output) == (0, True), done.output
    expected = write_prediction_page(run, file, tmp_path / "other.html", row=1, samples=2)
    assert (tmp_path / "page.html").read_text() == expected.read_text()
    assert CliRunner().invoke(app, [*args[:2], *args[1:], "--out", str(tmp_path / "page.html")]).exit_code == 2


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="There is no Chromium.")
def test_a_browser_shows_it_on_phones_and_desks(digits, diabetes, tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api")
    files = [
        write_prediction_page(*one, tmp_path / f"{number}.html", samples=2)
        for number, one in enumerate((digits, diabetes))
    ]
    outside = "e => e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().width == 0"
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width, scheme in ((360, "dark"), (1280, "light")):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            troubles, wanted = [], []
            page.on("console", lambda message, to=troubles: to.append(message.text))
            page.on("pageerror", lambda error, to=troubles: to.append(str(error)))
            page.on("request", lambda request, to=wanted: to.append(request.url))
            for file in files:
                page.goto(file.as_uri())
                assert page.evaluate("document.documentElement.scrollWidth") == width
                assert page.evaluate(f"[...document.querySelectorAll('svg, img')].filter({outside}).length") == 0
            assert troubles == []
            assert [url for url in wanted if not url.startswith(("file:", "data:"))] == []
            page.close()
        browser.close()
