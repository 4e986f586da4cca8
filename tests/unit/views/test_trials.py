"""What `try` prints of made trials."""

import csv
import io
import json
from dataclasses import replace

from instrumented_backend.records.trials import Agreement, Bound, SpeedUp, Trial, TrialRun
from instrumented_backend.views.output import render_view
from instrumented_backend.views.trials import TrialView, bound_text, progress_text

HELPS = Trial(
    "compiled-optimizer",
    "step = torch.compile(optimizer.step), and step()",
    "helps",
    bound=Bound("optimizer", "AdamW runs op by op", "train.py:12", 0.9, 45.0, "exact"),
    speed_up=SpeedUp(1.523, 1.491, 1.556, 4),
    step_s=0.02,
    gain_s=0.0105,
    gain_pct=34.4,
    compile_s=31.2,
    paid_back_after_steps=1667,
    peak_memory_bytes=512_000_000,
    prints=Agreement("numbers differ", 3.1e-7),
)
UNCLEAR = Trial("dynamic", "torch.compile(model, dynamic=True)", "unclear")
UNCLEAR.speed_up = SpeedUp(1.01, None, None, 1)
CACHES = Trial("warm-caches", "TORCHINDUCTOR_CACHE_DIR, kept between runs", "at the start")
CACHES.bound = Bound("cold-caches", "keep", None, 9.0, 20.0, "exact")
CACHES.gain_s, CACHES.compile_s = 8.25, 3.0
FAILED = Trial("eager", "no torch.compile", "failed", "ValueError: no")


def run_of(*trials: Trial) -> TrialRun:
    run = TrialRun("train.py", "step of AdamW", 5, 50, "cpu", 0.0305, 12.0, 500_000_000, 10, 95.0)
    run.trials = list(trials)
    return run


def lines_of(run: TrialRun, width: int = 120) -> list[str]:
    return TrialView(run).text(width).splitlines()


def test_a_change_that_helps() -> None:
    lines = lines_of(run_of(HELPS, UNCLEAR, CACHES, FAILED))
    assert lines[0] == (
        "train.py: 50 steps (step of AdamW) after 5, 30.5 ms each; compiles in 12.0 s; 500 MB · "
        "10 runs in 1 min 35 s"
    )
    assert lines[1] == (
        "compiled-optimizer helps: 1.52x (1.49 … 1.56) as fast. Write: step = "
        "torch.compile(optimizer.step), and step()"
    )
    (row,) = [line for line in lines if line.startswith("compiled-optimizer  ")]
    # The bound as a speed-up: 1 / (1 - 0.45).
    assert row.split()[1:6] == ["1.82x", "1.52x", "(1.49", "…", "1.56)"]
    assert " ".join(row.split()[6:]) == "helps 31.2 after 1,667 steps 512 MB within 3e-07"
    assert (
        "compiled-optimizer: step = torch.compile(optimizer.step), and step(); compiles in 31.2 s, "
        "paid back after 1,667 steps; 512 MB"
    ) in " ".join(" ".join(lines).split())
    (caches,) = [line for line in lines if line.startswith("warm-caches ")]
    assert "9.00 s" in caches and "saves 8.25 s" in caches
    assert lines[-1] == "eager: failed: ValueError: no"


def test_no_change_helps() -> None:
    same = Trial("dynamic", "torch.compile(model, dynamic=True)", "no difference")
    same.speed_up = SpeedUp(1.0, 0.99, 1.01, 4)
    assert lines_of(run_of(same, CACHES, FAILED))[1] == "no change helps"


def test_what_is_not_settled_is_said() -> None:
    said = lines_of(run_of(UNCLEAR))[1]
    assert said == "no change is known to help so far; not settled: dynamic"


def test_bounds() -> None:
    bound = Bound("optimizer", "AdamW runs op by op", None, 0.9, 75.0, "exact")
    assert bound_text(bound, start=False) == "4.00x"  # 1 / (1 - 0.75)
    assert bound_text(bound, start=True) == "0.90 s"
    assert bound_text(replace(bound, bound_pct=99.5), start=False) == "> 100x"
    assert bound_text(replace(bound, known="trial"), start=False) == "trial"
    assert bound_text(None, start=False) is None


def test_it_fits_a_narrow_terminal() -> None:
    lines = lines_of(run_of(HELPS, UNCLEAR, CACHES, FAILED), 80)
    assert max(map(len, lines)) <= 80


def test_files_have_the_bound_and_the_gain() -> None:
    view = TrialView(run_of(HELPS, FAILED))
    document = json.loads(render_view(view, "json"))
    assert document["schema_version"] == 1
    trial = document["trials"][0]
    assert (trial["bound"]["bound_pct"], trial["gain_pct"]) == (45.0, 34.4)
    assert trial["prints"] == {"kind": "numbers differ", "largest": 3.1e-7}
    rows = list(csv.DictReader(io.StringIO(render_view(view, "csv"))))
    assert (rows[0]["bound_pct"], rows[0]["gain_pct"], rows[0]["pairs"]) == ("45.0", "34.4", "4")
    assert (rows[1]["reason"], rows[1]["bound_pct"]) == ("ValueError: no", "")


def test_progress() -> None:
    assert progress_text(62.4, 600.0, "dynamic, run 2") == "1 min 2 s of 10 min · dynamic, run 2 "
