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
#: Figures of each kind: lines, panels, dots, maps; all of them would take longer and show no more.
SHOWN = ("reliability", "risk_coverage", "severity_curves", "ood_measures", "diversity", "member_pairs", "sigma_maps")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "FIGURES", [one for one in figures.FIGURES if one.__name__ in SHOWN])
        return write_report(classification(seeds=2, methods=METHODS[2:5], samples=(4,), types=("fog",), shown=2), path)


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


@pytest.fixture(scope="module")
def page(browser, report):
    """One page for the tests that leave it as it was."""
    with Visit(browser, report) as visited:
        yield visited


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
def test_nothing_overflows(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    open_all(page)
    assert page.evaluate(OVERFLOW) == []


@pytest.mark.parametrize("make", [evil, regression, bernoulli], ids=["evil", "regression", "text"])
def test_other_pages_open_without_a_word(browser, make, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", figures.FIGURES[:3])
    path = write_report(make()[:2], tmp_path / "report.html")
    with Visit(browser, path, 360) as page:
        open_all(page)
        assert page.evaluate(OVERFLOW) == []


def order(page, position):
    return page.eval_on_selector_all(
        "#table-scores tbody tr", f"rows => rows.map((row) => Number(row.cells[{position}].dataset.value))"
    )


def test_the_table_sorts_both_ways(page):
    for position, best_first, key in ((1, False, "click"), (2, True, "Enter"), (3, False, "Space")):
        head = page.locator("#table-scores thead th").nth(position)
        values = order(page, position)
        assert head.get_attribute("aria-sort") is None
        for reverse in (best_first, not best_first):
            if key == "click":
                head.locator("button").click()
            else:
                head.locator("button").focus()
                page.keyboard.press(key)
            assert order(page, position) == sorted(values, reverse=reverse)
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


FOCUSED = """() => {
  const one = document.activeElement;
  one.dataset.reached ??= document.querySelectorAll("[data-reached]").length;
  return [one.dataset.reached, getComputedStyle(one).outlineStyle, one === document.body];
}"""


def test_every_control_is_reached_by_tab(page):
    wanted = page.evaluate(
        "() => [...document.querySelectorAll('a, button, summary, [tabindex=\"0\"]')]"
        ".filter((one) => one.checkVisibility()).length"
    )
    reached = set()
    for _ in range(wanted + 1):  # from wherever the focus is, once around the page and its frame
        page.keyboard.press("Tab")
        position, outline, body = page.evaluate(FOCUSED)
        if not body:
            reached.add(position)
            assert outline != "none"
    assert len(reached) == wanted


#: What a screen reader would trip over: controls without a name, levels of headings left out, ids that are not unique,
#: references to nowhere, tables without headings of their columns.
STUMBLES = """() => {
  const wrong = [];
  const said = (ids) => ids.split(" ").map((id) => document.getElementById(id)?.textContent.trim() ?? "").join(" ");
  const named = (one) => (one.getAttribute("aria-label") ?? (one.hasAttribute("aria-labelledby")
    ? said(one.getAttribute("aria-labelledby")) : one.textContent)).trim();
  for (const one of document.querySelectorAll("a, button, summary, [tabindex], [role=region], section, nav"))
    if (one.id !== "content" && !named(one)) wrong.push(`no name: ${one.outerHTML.slice(0, 80)}`);
  let level = 0;
  for (const one of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    if (Number(one.tagName[1]) > level + 1) wrong.push(`after h${level}: ${one.outerHTML.slice(0, 80)}`);
    level = Number(one.tagName[1]);
  }
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of ids.filter((id, position) => ids.indexOf(id) !== position)) wrong.push(`twice: ${id}`);
  for (const name of ["aria-labelledby", "aria-describedby", "aria-controls", "for"])
    for (const one of document.querySelectorAll(`[${name}]`))
      for (const id of one.getAttribute(name).split(" "))
        if (!document.getElementById(id)) wrong.push(`${name}: no ${id}`);
  for (const one of document.querySelectorAll("a[href^='#']"))
    if (!document.getElementById(one.getAttribute("href").slice(1))) wrong.push(`link: ${one.outerHTML}`);
  for (const one of document.querySelectorAll("table"))
    if (!one.querySelector("thead th[scope=col]") || one.querySelector("tbody tr:not(:has(th[scope=row]))"))
      wrong.push(`headings: ${one.outerHTML.slice(0, 80)}`);
  for (const one of document.querySelectorAll("img:not([alt]), svg:not([aria-labelledby], [aria-hidden])"))
    wrong.push(`no words: ${one.outerHTML.slice(0, 80)}`);
  if (!document.documentElement.lang || !document.title) wrong.push("no language or title");
  return wrong;
}"""


def test_a_screen_reader_stumbles_over_nothing(page):
    assert page.evaluate(STUMBLES) == []


def test_what_a_screen_reader_would_stumble_over_is_found(browser, report):
    with Visit(browser, report, 360) as page:
        page.evaluate("document.querySelector('summary').textContent = ''")
        page.evaluate("document.querySelector('h3').outerHTML = '<h5 id=scores>x</h5>'")
        found = "; ".join(page.evaluate(STUMBLES))
        assert all(word in found for word in ("no name: <summary", "after h2: <h5", "twice: scores"))


def test_details_open_by_key(page):
    for key in ("Enter", "Space"):
        summary = page.locator("figure summary").first
        summary.focus()
        before = page.locator("figure details").first.get_attribute("open")
        page.keyboard.press(key)
        assert page.locator("figure details").first.get_attribute("open") != before
        assert page.locator("figure .numbers").first.is_visible() == (before is None)


def test_every_figure_has_a_text_alternative(page):
    assert page.locator("figure").count() == len(SHOWN)
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
  const known = new Map();
  const painted = (colour) => { paint.clearRect(0, 0, 1, 1); paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data]; };
  const rgba = (colour) => { if (!known.has(colour)) known.set(colour, painted(colour)); return known.get(colour); };
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


def test_contrast(page):
    open_all(page)
    for scheme in ("dark", "light"):
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
