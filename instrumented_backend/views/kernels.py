"""What the command ``kernels`` prints."""

from dataclasses import dataclass

from instrumented_backend.records import KernelRecord
from instrumented_backend.records.fields import field_values
from instrumented_backend.views.output import TableRow, to_json_lines
from instrumented_backend.views.tables import TABLES, kernel_row
from instrumented_backend.views.text import render_rows


@dataclass
class KernelsView:
    """All of them, with every column in the files."""

    kernels: list[KernelRecord]

    def text(self, width: int) -> str:
        return render_rows(TABLES["kernels"], self.rows(), width, max_rows=len(self.kernels))

    def rows(self) -> list[TableRow]:
        return [kernel_row(kernel) for kernel in self.kernels]

    def json(self) -> str:
        return to_json_lines(field_values(kernel) for kernel in self.kernels)
