"""Pictures carry their words, and their numbers stand in a real table."""

import base64
import html.parser
import importlib

import pytest

from minipd.lab.bank import Bar
from minipd.lab.show import ShowError, figure_html, html_table
from minipd.lab.svg import bars_alt, bars_svg, bars_table

show_module = importlib.import_module("minipd.lab.show")  # the package names its function alike
TABLE = {"phase": ["prefill", "decode"], "tokens/s": [400.0, 16]}


class Tags(html.parser.HTMLParser):
    """Every start tag with its attributes, and all the text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def all(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.mark.parametrize(
    ("value", "words"), [(17_922.1, "17,920"), (9_999.9, "10,000"), (2.973, "2.973"), (528, "528")]
)
def test_large_numbers_are_written_in_full(value, words):
    assert words in Tags(html_table({"ms": [value]})).text


def figure():
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    fig, ax = pyplot.subplots()
    ax.plot([1, 2])
    return fig


def test_a_figure_becomes_an_image_with_alt_text_and_a_table():
    page = Tags(figure_html(figure(), 'a "rising" <line>', TABLE))
    (image,) = page.all("img")
    assert image["alt"] == 'a "rising" <line>'
    svg = base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,"))
    assert b"<svg" in svg
    assert {head["scope"] for head in page.all("th")} == {"col", "row"}
    assert "prefill" in page.text and "400" in page.text


def test_the_same_numbers_give_the_same_bytes_and_no_figure_stays_open():
    from matplotlib import pyplot

    others = pyplot.get_fignums()  # another test's in the same process
    assert figure_html(figure(), "x") == figure_html(figure(), "x")
    assert pyplot.get_fignums() == others


@pytest.mark.parametrize("alt", ["", "   "])
def test_a_figure_without_words_is_refused(alt):
    with pytest.raises(ShowError, match="alt="):
        figure_html("<svg/>", alt)


def test_columns_must_have_equal_length():
    with pytest.raises(ShowError, match="as many rows"):
        html_table({"a": [1], "b": [1, 2]})


def test_table_text_is_escaped():
    assert "<script>" not in html_table({"a": ["<script>"]}, "<script>")


def test_a_timeline_says_in_words_and_numbers_what_it_draws():
    bars = (Bar("Ann", "prefill", 0.0, 0.5), Bar("Ben & Co", "decode", 0.5, 2.0))
    svg = bars_svg(bars)
    assert svg.count("<rect") == 4 and "Ben &amp; Co" in svg  # hatching, background, two bars
    assert "url(#hatch)" in svg and ">prefill<" in svg and ">decode<" in svg
    assert "Ann: prefill from 0 to 0.5 s." in bars_alt(bars)
    assert bars_table(bars)["to (s)"] == [0.5, 2.0]


def test_a_bar_too_short_for_its_words_gets_a_number_and_a_line_below():
    bars = (Bar("Ann", "prefill", 0.0, 0.1), Bar("Ann", "decode", 0.1, 9.0))
    svg = bars_svg(bars)
    assert ">1<" in svg and "1: prefill (Ann)" in svg and "2:" not in svg


def test_a_wide_table_scrolls_where_the_keyboard_reaches_it(monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr(show_module, "display_html", shown.append)
    show_module.show_table({"a": [1], 'b"': [2]})
    show_module.show_table({"a": [1]}, "Ones & twos")
    assert [text.startswith("<div role='region' ") for text in shown] == [True, True]
    assert all("tabindex='0'" in text and "overflow-x:auto" in text for text in shown)
    assert 'aria-label="Table: a, b&quot;"' in shown[0]
    assert 'aria-label="Ones &amp; twos"' in shown[1]
