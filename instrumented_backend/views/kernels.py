"""What the command ``kernels`` prints."""

import csv
import io
import json
import shutil

from instrumented_backend.records import KernelRecord
from instrumented_backend.records.fields import field_values
from instrumented_backend.views.tables import TABLES, kernel_row
from instrumented_backend.views.text import render_rows


def render_kernels(kernels: list[KernelRecord], layout: str) -> str:
    """``layout`` is "table", "json" (a list of records, one a line) or "csv"."""
    if layout == "json":
        return "[\n" + ",\n".join(json.dumps(field_values(kernel)) for kernel in kernels) + "\n]"
    rows = [kernel_row(kernel) for kernel in kernels]
    if layout == "csv":
        file = io.StringIO()
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return file.getvalue()
    width = shutil.get_terminal_size((80, 24)).columns
    return render_rows(TABLES["kernels"], rows, width, max_rows=len(rows))
