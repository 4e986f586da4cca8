"""How large the page of a large report is, and how long a browser takes to open it.

    python benchmarks/page_speed.py          # 10,000 source lines, 2,000 kernels
    python benchmarks/page_speed.py REPORT   # a saved one: under 2 MB, and 1 s

Needs playwright, and a Chromium of the distribution. Exits with 1 where a limit is passed.
"""

import hashlib
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from instrumented_backend.records import FileRecord, KernelRecord, LineRecord, Report, read_report
from instrumented_backend.views.page.page import render_page, to_bytes

LINES, FILES, KERNELS = 10_000, 20, 2_000
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
RUNS = 5
# Ready is when it is laid out: the end of the second frame after the load.
READY = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(
  () => done(performance.now()))))"""


def large(report: Report, folder: Path) -> Report:
    """``report`` with lines in each of `FILES` files, a third of them with ops."""
    report.lines, report.files, report.kernels = [], [], []
    for number in range(FILES):
        path = folder / f"module{number}.py"
        text = "".join(
            f"    hidden = self.layers[{line}](hidden, mask=attention_mask, scale=0.5 * {line})\n"
            for line in range(LINES // FILES)
        )
        path.write_text(text)
        report.files.append(FileRecord(str(path), hashlib.sha256(text.encode()).hexdigest()))
        report.lines += [
            LineRecord(
                str(path),
                line + 1,
                "Model.forward",
                *(300, 100, 200),
                {"linear": 12, "mul": 12},
                [0],
                *(40, 0.0, 123.4),
                kernels=[line % KERNELS],
            )
            for line in range(0, LINES // FILES, 3)
        ]
    report.kernels = [
        KernelRecord(
            f"triton_poi_fused_add_mul_native_layer_norm_{number}",
            "triton",
            0,
            "forward",
            kernel_category="pointwise",
            total_bytes=1_000 * number,
            calls=1,
            source_lines=[f"{report.files[0].file}:{3 * (number % 100) + 1}"],
        )
        for number in range(KERNELS)
    ]
    return report


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if len(sys.argv) > 1:
            report, most_mb, most_s = read_report(Path(sys.argv[1])), 2.0, 1.0
        else:
            recorded = Path(__file__).parents[1] / "tests" / "data" / "reports" / "breaks.json"
            report, most_mb, most_s = large(read_report(recorded), folder), 10.0, 3.0
        page = to_bytes(render_page([report]))
        path = folder / "page.html"
        path.write_bytes(page)
        times = []
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
            for _ in range(RUNS):
                opened = chromium.new_page(viewport={"width": 1600, "height": 1000})
                opened.goto(f"file://{path}")
                times.append(opened.evaluate(READY) / 1e3)
                opened.close()
            chromium.close()
    took = statistics.median(times)
    print(f"{len(page) / 1e6:.2f} MB (limit {most_mb:g})")
    print(
        f"open in {took:.2f} s, of {RUNS} {min(times):.2f} to {max(times):.2f} (limit {most_s:g})"
    )
    return int(len(page) > most_mb * 1e6 or took > most_s)


if __name__ == "__main__":
    sys.exit(main())
