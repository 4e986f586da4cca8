"""What Python imports at its start in the processes that ``run`` starts, if torch won't import us.

``run`` puts this folder on their PYTHONPATH where torch's autoload is off, or the package is not
installed but only importable. Any Python may find it, old ones too.
"""

import os
import sys


def _adopt(package):
    """Import the package from where it is, whatever the program's path has."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(
        "instrumented_backend",
        os.path.join(package, "__init__.py"),
        submodule_search_locations=[package],
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["instrumented_backend"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:  # as the import system does, whatever it was
        del sys.modules["instrumented_backend"]
        raise


_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [_path for _path in sys.path if os.path.abspath(_path) != _HERE]
if sys.version_info >= (3, 11):
    try:
        _adopt(os.path.dirname(_HERE))
    except Exception as _error:  # any: Python would print a traceback at every start
        sys.stderr.write("instrumented: not observed: %s\n" % _error)
# The environment's own, if it has one. Python expects this very ImportError where it has none.
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402, F401
