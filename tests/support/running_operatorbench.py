"""operatorbench.py as a command, and what it wrote."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import operatorbench

BENCHMARK = Path(operatorbench.__file__)


INPUTS = """\
Operator: aten.add.Tensor
cnt: 5, ((T([64, 32], f16), T([64, 32], f16)), {})
cnt: 9, ((T([8], f16), 1.0), {})
cnt: 1, ((T([128], f16), 2.0), {})
Operator: aten.embedding.default
cnt: 1, ((T([10, 4], f16), T([6], i64)), {})
Operator: aten.gone.default
cnt: 1, ((T([10], f16),), {})
Operator: aten.mm.default
cnt: 2, ((T([4, 5], f16), T([6, 7], f16)), {})
cnt: 1, ((T([4, 5], f16), T([5, 7], f16)), {})
Operator: aten.mul_.Tensor
cnt: 1, ((T([40], f16), 0.5), {})
Operator: aten.native_layer_norm.default
cnt: 1, ((T([4, 8], f16), [8], T([8], f16), T([8], f16), 1e-05), {})
Operator: aten.split.Tensor
cnt: 1, ((T([10], f16), 5), {})
"""


@dataclass
class Ran:
    code: int
    out: str
    err: str
    folder: Path

    def one(self, pattern: str) -> Path:
        (path,) = self.folder.glob(pattern)
        return path

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.one("*.json").read_text())


def run(folder: Path, *options: str) -> Ran:
    log = folder / "inputs.txt"
    if not log.exists():
        log.write_text(INPUTS)
    command = [sys.executable, BENCHMARK, "--inp-file", log, "--out", folder / "out"]
    command += ["--device", "cpu", "--repeats", "1", *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=900)
    return Ran(done.returncode, done.stdout, done.stderr, folder / "out")
