"""Editable installs get `instrumented_backend_autoload.py` as a file of their own, too.

torch imports it whenever it is itself imported. In a clone that was moved or removed, it would not
be found, and torch would not import. pyproject.toml has all the rest.
"""

import zipfile
from pathlib import Path

from setuptools import setup
from setuptools.command.editable_wheel import editable_wheel

AUTOLOAD = "instrumented_backend_autoload.py"


class EditableWheel(editable_wheel):
    def run(self) -> None:
        super().run()
        (wheel,) = Path(self.dist_dir).glob("*.whl")
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.write(Path(__file__).parent / AUTOLOAD, AUTOLOAD)


setup(cmdclass={"editable_wheel": EditableWheel})
