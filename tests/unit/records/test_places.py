"""Places in the program, as text."""

import pytest

from instrumented_backend.records import KernelRecord
from instrumented_backend.records.places import place


@pytest.mark.parametrize(
    ("text", "file", "line"),
    [
        ("/home/me/train.py:12", "/home/me/train.py", 12),
        ("C:/a:b.py:7", "C:/a:b.py", 7),
        ("In[3]:1", "In[3]", 1),
        ("train.py", "train.py", None),
        ("train.py:", "train.py:", None),
        ("train.py:²", "train.py:²", None),  # a digit that is no number
        (":12", ":12", None),
        (f"a.py:{'9' * 5000}", f"a.py:{'9' * 5000}", None),  # more than Python reads
        ("", "", None),
    ],
)
def test_a_place(text: str, file: str, line: int | None) -> None:
    assert place(text) == (file, line)


def test_of_a_kernel() -> None:
    kernel = KernelRecord("add", "cpp", source_lines=["a.py:3", "b.py"])
    assert kernel.places == [("a.py", 3), ("b.py", None)]
