"""The page in a real browser: Chromium from the distribution, from file://, driven by playwright.

``PAGE_SCREENSHOTS=FOLDER`` keeps what it looked like.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_report import hostile_report, page_report
from paths import REPOSITORY

from instrumented_backend.records import read_report
from instrumented_backend.views.page.page import render_page, to_bytes

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
    # Of playwright's own event loop, when it ends.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
# No sandbox: as root, which containers run as, Chromium has none.
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
DATA = REPOSITORY / "tests" / "data"
SIZES = [(380, "light"), (380, "dark"), (1600, "light"), (1600, "dark")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


class Opened:
    """A page, with what it said on its console and what it asked for."""

    def __init__(self, browser: Any, file: Path, width: int = 1600, scheme: str = "light") -> None:
        self.page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        self.said: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"file://{file}")

    def run(self, script: str) -> Any:
        return self.page.evaluate(script)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks."""
    folder = tmp_path_factory.mktemp("page")
    reports = [page_report(folder, rank) for rank in range(2)]
    reports[1].summary.recompiles = 3
    (folder / "page.html").write_bytes(to_bytes(render_page(reports)))
    return folder / "page.html"


@pytest.fixture
def opened(browser: Any, file: Path) -> Iterator[Opened]:
    one = Opened(browser, file)
    yield one
    assert one.said == []
    assert one.requests == [f"file://{file}"]
    one.page.close()


def test_sorting(opened: Opened) -> None:
    moved = (
        "[...document.querySelector('#r0-kernels').tBodies[0].rows].map(r => +r.cells[4].dataset.v)"
    )
    assert opened.run(moved) == [300, 20, 1000, 5, 7, 11, 13, 17, 19]
    header = opened.page.locator("#r0-kernels th button", has_text="moved")
    header.click()
    assert opened.run(moved) == [1000, 300, 20, 19, 17, 13, 11, 7, 5]
    assert opened.page.locator("#r0-kernels th[aria-sort=descending]").count() == 1
    header.press("Enter")
    assert opened.run(moved) == [5, 7, 11, 13, 17, 19, 20, 300, 1000]
    opened.page.locator("#r0-kernels th button", has_text="kernel").first.click()
    names = opened.run(
        "[...document.querySelector('#r0-kernels').tBodies[0].rows].map(r => r.cells[0].dataset.v)"
    )
    assert names == [f"kernel_{number}" for number in range(9)]


def test_filtering(opened: Opened) -> None:
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("kernel_2")
    visible = (
        "[...document.querySelector('#r0-kernels').tBodies[0].rows].filter(r => !r.hidden).length"
    )
    assert opened.run(visible) == 1
    assert opened.page.locator("output[data-count='r0-kernels']").inner_text() == "1 of 9 rows"
    opened.page.locator("input[data-filter='r0-kernels']").fill("")
    assert opened.run(visible) == 9


def test_from_a_break_to_its_line_and_back(opened: Opened) -> None:
    page = opened.page
    opened.run(
        "document.querySelectorAll('.report:not([hidden]) details').forEach(d => d.open = false)"
    )
    page.locator("#r0-b0 h3 a").click()
    line = page.locator(".l:focus")
    assert line.get_attribute("id") == "r0-f0-5" and line.locator("code").is_visible()
    assert "print" in line.locator("code").inner_text()
    assert line.locator(".i").is_visible()
    line.locator(".i a", has_text="the break").click()
    assert opened.run("document.activeElement.id") == "r0-b0"
    page.go_back()
    page.wait_for_function("document.activeElement.id === 'r0-f0-5'")
    page.locator("#r0-b0 a", has_text="graph 0").click()
    assert opened.run("document.activeElement.id") == "r0-g0"


def test_from_a_line_to_its_kernel(opened: Opened) -> None:
    opened.page.locator("#r0-f0-4").focus()
    opened.page.locator("#r0-f0-4 .i a", has_text="kernel_0").click()
    assert opened.run("document.activeElement.id") == "r0-k0"
    assert opened.page.locator("#r0-k0 dl").is_visible()


def test_ranks(opened: Opened) -> None:
    assert opened.page.locator("#r0-top").is_visible()
    opened.page.locator("#rank").select_option("r1-")
    assert opened.page.locator("#r1-top").is_visible()
    assert not opened.page.locator("#r0-top").is_visible()
    assert "recompiles · differs" in opened.page.locator(".ranks .differs").first.inner_text()
    # A link to another rank's shows that rank.
    opened.run("location.hash = 'r0-b0'")
    opened.page.wait_for_function("!document.getElementById('r0-top').hidden")
    assert opened.page.locator("#rank").input_value() == "r0-"


def test_keys(opened: Opened) -> None:
    reached = []
    for _ in range(5):
        opened.page.keyboard.press("n")
        reached.append(opened.run("document.activeElement.id"))
    assert reached == ["r0-f0-3", "r0-f0-5", "r0-f0-6", "r0-f0-3", "r0-f0-5"]
    opened.page.keyboard.press("p")
    assert opened.run("document.activeElement.id") == "r0-f0-3"
    opened.page.keyboard.press("?")
    assert opened.page.locator("#help").is_visible()
    opened.run("document.querySelectorAll('details.file').forEach(d => d.open = false)")
    opened.page.keyboard.press("n")
    assert opened.page.locator(".l:focus code").is_visible()  # in a file that was folded


def test_only_lines_with_a_letter(opened: Opened) -> None:
    visible = "[...document.querySelectorAll('#r0-s-files .l')].filter(l => l.offsetParent).length"
    assert opened.run(visible) == 1 + 6  # the head, and six lines
    opened.page.locator("input[data-only]").first.check()
    assert opened.run(visible) == 1 + 4


def test_the_sums_on_the_screen(opened: Opened) -> None:
    sums = opened.run(
        """() => {
          const sum = (name) => [...document.querySelectorAll(`#r0-top [data-t]`)]
            .reduce((all, line) => all + Number(line.dataset[name]), 0);
          return [sum("c"), sum("e"), sum("t")];
        }"""
    )
    assert sums == [30, 10, 1000]


# --- How it looks -------------------------------------------------------------------------------

# Each element's box against that of what holds it; what scrolls may hold more.
OVERFLOWING = """() => {
  const found = [];
  const scrolls = (e) => e && e.closest(".src, .scroll, pre, svg, .skip, select");
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page");
  for (const e of document.querySelectorAll("body *")) {
    if (scrolls(e) || !e.getClientRects().length) continue;
    const box = e.getBoundingClientRect();
    if (box.left < -0.5 || box.right > innerWidth + 0.5)
      found.push(e.tagName + "." + e.className + " " + e.textContent.slice(0, 40));
  }
  return found;
}"""
# Text that stands over other text: of elements that hold text themselves, not one in the other.
OVERLAPPING = """() => {
  const texts = [...document.querySelectorAll("body *")].filter((e) =>
    e.checkVisibility() && !e.closest("svg, .skip, select, .jump, script, style") &&
    [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
  const boxes = [];
  for (const e of texts)
    for (const node of e.childNodes) {
      if (node.nodeType !== 3 || !node.data.trim()) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const r of range.getClientRects()) {
        // What a box that scrolls cuts off is not seen.
        let box = { left: r.left, right: r.right, top: r.top, bottom: r.bottom };
        for (let at = e; at && at !== document.body; at = at.parentElement) {
          if (getComputedStyle(at).overflowX === "visible") continue;
          const cut = at.getBoundingClientRect();
          box = { left: Math.max(box.left, cut.left), right: Math.min(box.right, cut.right),
                  top: Math.max(box.top, cut.top), bottom: Math.min(box.bottom, cut.bottom) };
        }
        if (box.right - box.left > 1 && box.bottom - box.top > 1)
          boxes.push([box, node.data.trim()]);
      }
    }
  boxes.sort((a, b) => a[0].top - b[0].top);
  const found = [];
  boxes.forEach(([a, said], i) => {
    for (let j = i + 1; j < boxes.length && boxes[j][0].top < a.bottom - 3; j++) {
      const b = boxes[j][0];
      if (a.left < b.right - 1 && b.left < a.right - 1 && b.bottom > a.top + 3)
        found.push(said.slice(0, 40) + " | " + boxes[j][1].slice(0, 40));
    }
  });
  return found;
}"""
# WCAG: 4.5 to 1 for text. Colours are drawn on a canvas, which knows them all.
LOW_CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgba(getComputedStyle(e).backgroundColor);
      if (c[3] > 250) return c;
    }
    return [255, 255, 255, 255];
  };
  const found = new Set();
  let seen = 0;
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility() || e.closest("svg, script, style, option")) continue;
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    seen++;
    const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.add(`${e.tagName}.${e.className} ${ratio.toFixed(2)}`);
  }
  return [seen, [...found]];
}"""


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_nothing_overlaps_and_all_can_be_read(
    browser: Any, file: Path, width: int, scheme: str
) -> None:
    opened = Opened(browser, file, width, scheme)
    opened.run(
        "document.querySelectorAll('.report:not([hidden]) details').forEach(d => d.open = true)"
    )
    opened.page.locator("#r0-f0-5").focus()
    folder = os.environ.get("PAGE_SCREENSHOTS")
    if folder:
        opened.page.screenshot(path=f"{folder}/page-{width}-{scheme}.png", full_page=True)
    assert opened.run(OVERFLOWING) == []
    assert opened.run(OVERLAPPING) == []
    seen, low = opened.run(LOW_CONTRAST)
    assert seen > 150 and low == []
    opened.page.close()


RECORDED = sorted((DATA / "reports").glob("*.json"))


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (1600, "light")])
def test_pages_of_recorded_reports(
    browser: Any, tmp_path: Path, recorded: Path, width: int, scheme: str
) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(to_bytes(render_page([read_report(recorded)])))
    opened = Opened(browser, file, width, scheme)
    opened.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert opened.run(OVERFLOWING) == []
    assert opened.run(OVERLAPPING) == []
    seen, low = opened.run(LOW_CONTRAST)
    assert seen > 150 and low == []
    assert opened.said == [] and opened.requests == [f"file://{file}"]
    opened.page.close()


@pytest.mark.parametrize(
    ("name", "broken"), [("page-cpu", "if "), ("page-gpu", "torch._dynamo.graph_break()")]
)
def test_the_pictures_of_the_docs(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, broken: str
) -> None:
    """``docs/page-cpu.png`` is of ``page_cpu.json``: its top, and the line that broke the graph."""
    monkeypatch.chdir(REPOSITORY)
    recorded = DATA / "reports" / f"{name.replace('-', '_')}.json"
    file = tmp_path / "page.html"
    file.write_bytes(to_bytes(render_page([read_report(recorded)])))
    opened = Opened(browser, file)
    folder = os.environ.get("PAGE_SCREENSHOTS")
    opened.page.set_viewport_size({"width": 1280, "height": 1000})
    if folder:
        opened.page.screenshot(path=f"{folder}/{name}.png")
    opened.page.set_viewport_size({"width": 1280, "height": 720})
    line = opened.page.locator(".l.B").first
    line.focus()
    line.evaluate("e => e.scrollIntoView({block: 'center'})")
    assert line.locator("code").inner_text().strip().startswith(broken)  # its source was found
    assert "try:" in line.locator(".i").inner_text()
    if folder:
        opened.page.screenshot(path=f"{folder}/{name}-line.png")
    opened.page.close()


def test_the_checks_find_what_they_look_for(browser: Any, file: Path) -> None:
    opened = Opened(browser, file)
    opened.run("document.querySelector('h1').style.marginRight = '-99rem'")
    opened.run("document.querySelector('h1').style.maxWidth = 'none'")
    assert any(each.startswith("H1") for each in opened.run(OVERFLOWING))
    opened.run("document.querySelector('.meta').style.marginTop = '-1.5rem'")
    assert opened.run(OVERLAPPING)
    opened.run("document.querySelector('.meta').style.color = '#9aa0a6'")
    assert any("meta" in each for each in opened.run(LOW_CONTRAST)[1])
    opened.page.close()


def test_the_button_for_light_and_dark(opened: Opened) -> None:
    before = opened.run("getComputedStyle(document.body).backgroundColor")
    opened.page.locator("#theme").click()
    assert opened.run("getComputedStyle(document.body).backgroundColor") != before


def test_hostile_text_runs_nothing(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(to_bytes(render_page([hostile_report(tmp_path)])))
    opened = Opened(browser, file, 380)
    opened.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert opened.run("window.hacked === undefined")
    assert opened.said == [] and opened.requests == [f"file://{file}"]
    assert opened.run(OVERFLOWING) == []
    opened.page.close()


def test_in_a_notebooks_frame(browser: Any, tmp_path: Path) -> None:
    from instrumented_backend.views.shown import html

    file = tmp_path / "cell.html"
    file.write_text(f"<!doctype html><body>{html(page_report(tmp_path))}</body>")
    opened = Opened(browser, file)
    frame = opened.page.frames[1]
    frame.locator("#r0-b0 h3 a").click()
    assert frame.evaluate("document.activeElement.id") == "r0-f0-5"
    assert opened.said == []
    opened.page.close()


def test_on_paper(browser: Any, file: Path) -> None:
    opened = Opened(browser, file)
    opened.page.emulate_media(media="print")
    assert not opened.page.locator(".jump").first.is_visible()
    assert opened.page.locator("#r0-f0-5 .i").is_visible()
    assert len(opened.page.pdf()) > 10_000
    opened.page.close()
