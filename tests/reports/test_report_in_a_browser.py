"""The report in a real browser: opened from disk, hovered, dark, narrow."""

import pytest
from tests.reports.chromium import chromium, needs_chromium
from tests.reports.test_report import make_glue, make_tuned
from tests.reports.test_serve import CONTRASTS, PHONE, WIDE

from electrify.reports.options import Report
from electrify.reports.report import report

pytestmark = [needs_chromium, pytest.mark.slow]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as open_tab:
        yield open_tab


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    """Write a report on a run with examples, GLUE results and fine-tuned models."""
    folder = tmp_path_factory.mktemp("page")
    tuned = [make_tuned(folder / "pretrained", 0.8), make_tuned(folder / "random", 0.5)]
    out = folder / "report.html"
    report(Report(folders=(run, make_glue(folder / "glue"), *tuned), out=out))
    return out


@pytest.mark.parametrize("size", [WIDE, PHONE])
@pytest.mark.parametrize("dark", [False, True])
def test_it_opens_from_disk_fits_and_can_be_read(size, dark, browser, page, tmp_path):
    tab = browser()
    tab.look(*size, dark=dark)
    tab.open(page.as_uri())
    assert tab.run("document.documentElement.scrollWidth") <= size[0]
    drawn = "[...document.querySelectorAll('svg[role=img]')].map(e => e.getBoundingClientRect())"
    boxes = tab.run(f"{drawn}.map(box => [box.left, box.right, box.height])")
    assert len(boxes) > 2
    assert [b for b in boxes if b[0] < 0 or b[1] > size[0] or b[2] < 40] == []
    assert min(tab.run(CONTRASTS)) >= 4.5
    tab.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000
    assert tab.console == []
    assert tab.requests == [page.as_uri()]


def test_hovering_over_a_token_shows_its_probability(browser, page):
    tab = browser()
    tab.look(*WIDE)
    tab.open(page.as_uri())
    tab.hover(".token.caught, .token.missed, .token")
    tab.wait("document.querySelector('.token:hover')")
    tip = "getComputedStyle(document.querySelector('.token:hover'), '::before')"
    assert tab.run(f"{tip}.display") == "block"
    assert "%" in tab.run(f"{tip}.content")
    assert tab.console == []
