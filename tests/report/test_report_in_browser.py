"""The report in a real Chromium: it works, reads well at any width, and asks the network for nothing."""

import shutil
from pathlib import Path

import pytest
from records import METHODS, bernoulli, classification, evil, regression

from slimbayes.report import figures, write_report

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH"),
    pytest.mark.xdist_group("browser"),
]
WIDTHS = (360, 1280)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(classification(seeds=2, methods=METHODS[2:5], types=("fog",)), path)


class Visit:
    """A page, and what went wrong on it."""

    def __init__(self, browser, path: Path, width=1280, scheme="light", **options):
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
        self.page = self.context.new_page()
        self.wrong = []
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        self.context.route("**/*", self._only_files)
        self.page.goto(path.as_uri())

    def _only_files(self, route):
        if route.request.url.startswith("file://"):
            route.continue_()
        else:
            self.wrong.append(route.request.url)
            route.abort()

    def __enter__(self):
        return self.page

    def __exit__(self, *error):
        self.context.close()
        if error[0] is None:
            assert self.wrong == []


OVERFLOW = """() => {
  const wide = document.documentElement.scrollWidth - innerWidth;
  const inside = (one) => one.closest(".scroll, .plot, .visually-hidden, .skip");
  const out = [...document.querySelectorAll("body *")].filter((one) => !inside(one) && one.getClientRects().length
    && (one.getBoundingClientRect().right > innerWidth + 0.5 || one.getBoundingClientRect().left < -0.5));
  return wide > 0 ? [`page: ${wide}`] : out.map((one) => one.outerHTML.slice(0, 80));
}"""


def open_all(page):
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overflows(browser, report, width):
    with Visit(browser, report, width) as page:
        open_all(page)
        assert page.evaluate(OVERFLOW) == []


@pytest.mark.parametrize("make", [evil, regression, bernoulli], ids=["evil", "regression", "text"])
def test_other_pages_open_without_a_word(browser, make, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", figures.FIGURES[:3])
    path = write_report(make()[:2], tmp_path / "report.html")
    with Visit(browser, path, 360) as page:
        open_all(page)
        assert page.evaluate(OVERFLOW) == []


def order(page, place):
    return page.eval_on_selector_all(
        "#table-scores tbody tr", f"rows => rows.map((row) => Number(row.cells[{place}].dataset.value))"
    )


def test_the_table_sorts_both_ways(browser, report):
    with Visit(browser, report) as page:
        for place, best_first, key in ((1, False, "click"), (2, True, "Enter"), (3, False, "Space")):
            head = page.locator("#table-scores thead th").nth(place)
            values = order(page, place)
            assert head.get_attribute("aria-sort") is None
            for reverse in (best_first, not best_first):
                if key == "click":
                    head.locator("button").click()
                else:
                    head.locator("button").focus()
                    page.keyboard.press(key)
                assert order(page, place) == sorted(values, reverse=reverse)
                assert head.get_attribute("aria-sort") == ("descending" if reverse else "ascending")
                assert page.locator("#table-scores th[aria-sort]").count() == 1
        assert "Sorted by ECE" in page.locator(".said").inner_text()


def test_words_sort_and_what_is_missing_comes_last(browser, report):
    with Visit(browser, report) as page:
        page.evaluate(
            "() => { const cell = document.querySelector('#table-scores tbody tr').cells[1];"
            " delete cell.dataset.value; cell.dataset.missing = ''; }"
        )
        first = page.locator("#table-scores tbody tr").first.locator("th").inner_text()
        for _ in range(2):
            page.locator("#table-scores thead button").nth(1).click()
            assert page.locator("#table-scores tbody tr").last.locator("th").inner_text() == first
        page.locator("#table-scores thead button").first.click()
        names = page.locator("#table-scores tbody th").all_inner_texts()
        assert names == sorted(names, key=str.lower)


def test_every_control_is_reached_by_tab(browser, report):
    with Visit(browser, report) as page:
        wanted = page.evaluate(
            "() => [...document.querySelectorAll('a, button, summary, [tabindex=\"0\"]')]"
            ".filter((one) => one.checkVisibility()).length"
        )
        reached = set()
        for _ in range(wanted):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("() => [...document.querySelectorAll('*')].indexOf(document.activeElement)"))
            assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") != "none"
        assert len(reached) == wanted


def test_every_figure_has_a_text_alternative(browser, report):
    with Visit(browser, report) as page:
        assert page.locator("figure").count() > 5
        for figure in page.locator("figure").all():
            svg = figure.locator("svg[role=img]")
            assert svg.count() == 1
            named = svg.get_attribute("aria-labelledby").split()
            words = [page.locator(f"[id='{name}']").text_content() for name in named]
            assert all(word.strip() for word in words)
            assert len(" ".join(words)) > 40
            assert figure.locator("figcaption").inner_text().strip()
            assert figure.locator("details table tbody tr").count() > 0
        assert page.locator("img:not([alt])").count() == 0


CONTRAST = """() => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => { paint.clearRect(0, 0, 1, 1); paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92
    : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05); };
  const behind = (one) => { for (; one; one = one.parentElement) {
    const colour = rgba(getComputedStyle(one).backgroundColor); if (colour[3] === 255) return colour; } };
  const bad = [];
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !one.checkVisibility() || ["SCRIPT", "STYLE", "title", "desc"].includes(one.tagName)) continue;
    const style = getComputedStyle(one);
    const found = contrast(rgba(one.closest("svg") ? style.fill : style.color), behind(one));
    if (found < 4.5) bad.push([one.outerHTML.slice(0, 90), found]);
  }
  const probe = document.body.appendChild(document.createElement("i"));
  for (let k = 1; k <= 8; k++) {
    probe.style.color = `var(--series-${k})`;
    const found = contrast(rgba(getComputedStyle(probe).color), behind(document.body));
    if (found < 3) bad.push([`series ${k}`, found]);
  }
  return bad;
}"""


def test_contrast(browser, report):
    with Visit(browser, report) as page:
        open_all(page)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(CONTRAST) == []


def background(page):
    return page.evaluate("() => getComputedStyle(document.body).backgroundColor")


def test_the_theme_is_the_readers_and_is_remembered(browser, report):
    with Visit(browser, report, scheme="light") as page:
        light = background(page)
        page.emulate_media(color_scheme="dark")
        dark = background(page)
        assert dark != light
        page.get_by_role("button", name="Use the light theme").click()
        assert background(page) == light
        page.reload()
        assert background(page) == light
        page.get_by_role("button", name="Use the dark theme").click()
        assert background(page) == dark


def test_without_storage_or_scripts(browser, report):
    with Visit(browser, report) as page:
        page.add_init_script("Object.defineProperty(window, 'localStorage', { get() { throw new Error('refused'); } })")
        page.reload()
        page.get_by_role("button", name="Use the dark theme").click()
    with Visit(browser, report, java_script_enabled=False) as page:
        assert page.locator(".theme").is_hidden()
        assert page.locator("#table-scores tbody tr").count() == 3


def test_on_paper(browser, report):
    with Visit(browser, report, scheme="dark") as page:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        assert background(page) == "rgb(255, 255, 255)"
        assert page.locator(".theme").is_hidden()
        assert page.locator(".about").get_attribute("open") is not None
        assert page.evaluate("() => getComputedStyle(document.querySelector('figure')).breakInside") == "avoid"
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator(".about").get_attribute("open") is None
