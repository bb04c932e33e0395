"""Drawings inside a page and as files."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import records

import slimbayes.report
from slimbayes.report._svg import save, themed_svg
from slimbayes.report.comparison import Comparison
from slimbayes.report.figures import drawings
from slimbayes.report.figures._style import LIGHT, MAP_COLOUR, SERIES
from slimbayes.report.figures.member_figures import member_pairs
from slimbayes.report.figures.predictions import reliability, risk_coverage

KNOWN = {f"var(--{name})" for name in ("ink", "muted", "grid", "surface", *(f"series-{n + 1}" for n in range(SERIES)))}


@pytest.fixture(scope="module")
def made():
    return drawings(Comparison(records.classification(1, records.METHODS[3:5], picture_size=0, shown=0)))


@pytest.fixture(scope="module")
def elements(made):
    return {drawing.key: themed_svg(drawing) for drawing in made}


def test_ids_are_unique_on_the_page_and_all_that_is_named_is_there(elements):
    page = "".join(elements.values())
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(set(ids)) == len(ids)
    named = set(re.findall(r'(?:href="|url\()#([^")]*)', page))
    assert named
    assert named <= set(ids)


def test_every_colour_follows_the_page(elements):
    for key, text in elements.items():
        words = re.sub(r'href="data:[^"]*"', "", text)
        assert not re.search(r"#[0-9a-fA-F]{6}\b", words), key
        assert not re.search(r"rgb\(", words), key
        assert set(re.findall(r"var\([^)]*\)", words)) <= KNOWN
        assert "var(--ink)" in words


def test_text_is_text_in_the_pages_font(made, elements):
    for drawing in made:
        text = elements[drawing.key]
        root = ElementTree.fromstring(text)
        assert "font-family" not in text
        written = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        for ax in drawing.figure.axes:
            assert set(ax.get_title(loc="left").strip().splitlines()) <= set(written)


def test_it_has_a_name_a_description_and_no_fixed_size(made, elements):
    for drawing in made:
        root = ElementTree.fromstring(elements[drawing.key])
        assert root.attrib["role"] == "img"
        title, description = (root.find(f"*[@id='{one}']") for one in root.attrib["aria-labelledby"].split())
        assert title.text == drawing.title
        assert description.text == drawing.alt
        assert root.attrib["width"] == "100%"
        assert "height" not in root.attrib
        assert root.attrib["data-width"] == "720"
        assert re.fullmatch(r"0 0 540 [\d.]+", root.attrib["viewBox"])


def test_it_is_small_and_holds_no_more_than_the_picture(elements):
    for key, text in elements.items():
        assert len(text) < 60_000, key
        assert not re.search(r"<!|<\?|metadata|<style|matplotlib|xlink", text), key
        assert "nan" not in re.sub(r'href="data:[^"]*"|<desc.*?</desc>|<text.*?</text>', "", text), key
        assert not re.search(r"\d\.\d\d\d\d", re.sub(r'href="data:[^"]*"|<desc.*?</desc>|<text.*?</text>', "", text)), (
            key
        )


def test_the_same_drawing_gives_the_same_text(tmp_path):
    comparison = Comparison(records.classification(1, records.METHODS[4:], picture_size=0, shown=0))
    first, second = reliability(comparison), reliability(comparison)
    text = themed_svg(first)
    save(first, tmp_path)
    assert themed_svg(first) == text == themed_svg(second)


def test_markup_in_names_is_escaped():
    made = records.evil()
    drawing = risk_coverage(Comparison(made))
    text = themed_svg(drawing._replace(alt='<script>"&</script>'))
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_letters_that_the_font_lacks_are_the_readers():
    """And no warning, which here would be an error."""
    made = records.evil()
    made[0].content["title"] = "方法 🙂"
    assert "方法 🙂" in themed_svg(risk_coverage(Comparison(made)))


def test_numbers_are_rounded_to_a_tenth_of_a_unit():
    from slimbayes.report._svg import _NUMBER, _rounded

    assert _NUMBER.sub(_rounded, "1.04 -0.04 -0.26 12.96 -12.04 0.5") == "1 0 -0.3 13 -12 0.5"


def test_heat_maps_are_pictures_with_sharp_cells():
    comparison = Comparison(records.classification(1, records.METHODS[4:], picture_size=0, shown=0))
    images = re.findall(r"<image [^>]*>", themed_svg(member_pairs(comparison)))
    assert len(images) == 2
    assert all("image-rendering:pixelated" in image and "data:image/png;base64," in image for image in images)


def test_files_have_light_colours_and_their_fonts_inside(tmp_path):
    comparison = Comparison(records.classification(1, records.METHODS[4:], picture_size=0, shown=0))
    drawing = reliability(comparison)
    svg, pdf = save(drawing, tmp_path / "new")
    assert [svg.name, pdf.name] == ["reliability.svg", "reliability.pdf"]
    text = svg.read_text()
    assert LIGHT["series-1"] in text
    assert "var(" not in text
    assert "<text" not in text, "letters are outlines"
    assert "<dc:date>" not in text
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF")
    assert b"/FontFile2" in content
    assert b"CreationDate" not in content
    again = save(drawing, tmp_path / "again")
    assert [path.read_bytes() for path in again] == [svg.read_bytes(), content]


def test_other_formats_are_refused(tmp_path, made):
    with pytest.raises(ValueError, match="Expected argument `formats` to be one of 'svg', 'pdf', but got 'gif'"):
        save(made[0], tmp_path, ["gif"])


def test_colours_are_those_of_the_light_page():
    style = (Path(slimbayes.report.__path__[0]) / "static" / "style.css").read_text()
    for name, colour in LIGHT.items():
        assert re.search(rf"--{name}:\s*(?:light-dark\()?{colour}\b", style), name
    assert len({*LIGHT.values(), MAP_COLOUR}) == len(LIGHT) + 1
