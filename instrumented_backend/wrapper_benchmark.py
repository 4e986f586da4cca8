"""The names of ``torch._inductor.wrapper_benchmark``: `instrumented_backend.dropins`' module."""

import sys

from instrumented_backend.dropins import wrapper_benchmark

sys.modules[__name__] = wrapper_benchmark
