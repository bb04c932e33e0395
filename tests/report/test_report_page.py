"""The page as text: everything that was given is on it, escaped, and nothing is fetched."""

import re
from html.parser import HTMLParser

import pytest
from record_parts import picture
from records import METHODS, bernoulli, classification, evil, minimal, regression

from slimbayes.report import figures, report_page, write_report
from slimbayes.report._gallery import PICTURE_BUDGET, galleries
from slimbayes.report._render import render
from slimbayes.report.comparison import Comparison

VOID = {"meta", "img", "br", "link", "input", "path", "use", "rect", "image", "line", "circle"}


class Outline(HTMLParser):
    """Elements, their attributes and headings; raises on an end that has no beginning."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.headings, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, text):
        if not {"script", "style"} & set(self.open):
            self.text.append(text)


@pytest.fixture
def without_figures(monkeypatch):
    monkeypatch.setattr(report_page, "drawings", lambda comparison: [])


def page_of(evaluations, folder, **options):
    return write_report(evaluations, folder / "report.html", **options).read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize(
    "make",
    [classification, bernoulli, regression, lambda: [minimal()], evil],
    ids=["classes", "text", "real", "minimal", "evil"],
)
def test_pages_are_well_formed(make, tmp_path):
    check(Outline(page_of(make(), tmp_path)))


def check(outline):
    """Check headings, ids and what refers to them."""
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in zip(outline.headings, outline.headings[1:], strict=False))
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for tag, attributes in outline.elements if tag == "a"]
    assert all(link[0] == "#" and link[1:] in ids for link in links)
    named = [
        attributes[key]
        for _, attributes in outline.elements
        for key in attributes
        if key in ("aria-labelledby", "aria-describedby")
    ]
    assert all(name in ids for names in named for name in names.split())


def test_a_page_with_figures_asks_for_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", figures.FIGURES[:3])
    text = page_of(classification(seeds=1, methods=METHODS[3:5], samples=(4,)), tmp_path, figures=tmp_path / "figures")
    outline = Outline(text)
    check(outline)
    assert re.findall(r"https?://[^\s\"'<)]*", text.replace("http://www.w3.org/2000/svg", "")) == []
    for tag, attributes in outline.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:image/")), (tag, attributes[name])
    assert "default-src 'none'" in next(one["content"] for _, one in outline.elements if "http-equiv" in one)
    drawn = {attributes["id"].removeprefix("figure-") for tag, attributes in outline.elements if tag == "figure"}
    files = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn
    assert {f"{key}.{kind}" for key in drawn for kind in ("svg", "pdf")} <= files
    assert {f"scores.{kind}" for kind in ("csv", "tex", "md")} <= files


@pytest.mark.usefixtures("without_figures")
def test_names_are_text(tmp_path):
    text = page_of(evil(), tmp_path, title="<b>&amp;</b>")
    outline = Outline(text)
    assert [tag for tag, _ in outline.elements].count("script") == 2
    assert "b" not in {tag for tag, _ in outline.elements}
    assert not any(name.startswith("on") for _, attributes in outline.elements for name in attributes)
    assert "javascript:" not in text
    said = "".join(outline.text)
    assert "<script>alert(1)</script>" in said
    assert "a_b & c%|{d}" in said
    assert "<b>&amp;</b>" in said


@pytest.mark.usefixtures("without_figures")
def test_an_incomplete_evaluation_is_said_to_be_so(tmp_path):
    assert "not complete" in page_of([minimal()], tmp_path)


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize(
    ("data", "config", "expected"),
    [
        ("table", {"data": {"name": "table", "path": "some/pets.csv"}}, "alone on pets.csv"),
        ("uci", {"data": {"name": "uci", "set": "yacht"}}, "alone on yacht"),
        ("wine", {}, "alone on wine"),
    ],
)
def test_the_heading_names_the_data(tmp_path, data, config, expected):
    one = minimal()
    one.content.update(data=data, config=config)
    assert f"<h1>{expected}</h1>" in page_of([one], tmp_path)


@pytest.mark.usefixtures("without_figures")
def test_labels_are_no_classes(tmp_path):
    one = minimal()
    one.content["task"] |= {"likelihood": "bernoulli", "outputs": 3}
    said = "".join(Outline(page_of([one], tmp_path)).text)
    assert "3 labels, yes or no" in said
    assert "3 classes" not in said


@pytest.mark.usefixtures("without_figures")
def test_the_gallery_shows_texts_and_values(tmp_path):
    assert "A film that &lt;b&gt;almost&lt;/b&gt; works" in page_of(bernoulli(), tmp_path)
    said = "".join(Outline(page_of(regression(), tmp_path)).text)
    assert "LSTAT" in said
    assert "Largest errors for their standard deviation" in said


@pytest.mark.usefixtures("without_figures")
def test_the_same_evaluations_give_the_same_page(tmp_path):
    assert page_of(regression(), tmp_path) == page_of(regression(), tmp_path)


def test_pictures_keep_to_their_budget():
    import numpy as np

    large = picture(np.random.default_rng(0), 96)
    made = classification(seeds=1, shown=12, picture_size=1, samples=(1,), types=())
    for one in made:
        for items in one.result()["clean"]["gallery"].values():
            for item in items:
                item["picture"] = large
    shelves = [shelf for picks in galleries(Comparison(made)) for shelf in picks.shelves]
    assert len(shelves) == 12
    assert len({len(shelf.cards) for shelf in shelves}) == 1
    count = len(shelves[0].cards)
    assert 12 * count * len(large) <= PICTURE_BUDGET < 12 * (count + 1) * len(large)


@pytest.mark.slow
def test_ten_runs_stay_below_five_megabytes(tmp_path):
    kinds = tuple(f"corruption {k}" for k in range(19))
    methods = [(f"method {k}", "rank1", 8, 10_000_000, -0.001 * k, 0.0, 0.0) for k in range(10)]
    made = classification(seeds=1, methods=methods, samples=(1, 4, 25), picture_size=96, types=kinds, shown=12)
    assert len(page_of(made, tmp_path).encode()) < 5_000_000


def test_base_page_stands_alone():
    assert Outline(render("base.html.j2")).headings == [1]


@pytest.mark.usefixtures("without_figures")
def test_configurations_of_one_title_are_told_apart_everywhere(tmp_path):
    made = classification(seeds=2, methods=METHODS[4:5])
    for one, members in zip(made, (4, 8), strict=True):
        one.content["config"] = {"method": {"members": members}}
    said = "".join(Outline(page_of(made, tmp_path)).text)
    for title in Comparison(made).titles:
        assert said.count(title) >= 5, title
