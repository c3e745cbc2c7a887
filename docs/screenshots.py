"""Take the README's screenshots of a run: `python -m docs.screenshots RUN` (needs Chromium).

The report and the inspector of that run, in light and dark, become PNG files in docs/figures.
"""

import sys
import tempfile
import threading
from pathlib import Path

from tests.reports.chromium import chromium

from electrify.reports.options import Report
from electrify.reports.pair import load_pair
from electrify.reports.report import report
from electrify.reports.serve import start

FIGURES = Path(__file__).parent / "figures"
SIZE = (1100, 720)
TEXT = "The committee approved the budget after a long debate about schools, roads and hospitals."
CORRUPTED = "document.querySelector('.counts:not([hidden])')"


def main(run: Path) -> None:
    """Open the report and the inspector of a run, and take a picture of each in both themes."""
    with (
        tempfile.TemporaryDirectory() as temporary,
        chromium(Path(temporary) / "profile") as open_tab,  # first: it wants low file descriptors
        start([load_pair(str(run))], TEXT, "127.0.0.1", 0) as server,
    ):
        page = Path(temporary) / "report.html"
        report(Report(folders=(run,), out=page, examples=3))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for theme in ("light", "dark"):
            tab = open_tab()
            tab.look(*SIZE, dark=theme == "dark")
            tab.open(page.as_uri())
            tab.screenshot(FIGURES / f"report-{theme}.png")
            tab.open(server.url)
            tab.wait("!document.querySelector('#corrupt').disabled")
            tab.run("document.querySelector('#corrupt').click()")
            tab.wait(CORRUPTED)
            tab.screenshot(FIGURES / f"inspector-{theme}.png")
        server.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
