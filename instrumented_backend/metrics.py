"""``torch._inductor.metrics`` with tables that work: `instrumented_backend.dropins.metrics`."""

import sys

from instrumented_backend.dropins import metrics

# The module itself: Inductor's counters are set through its attributes.
sys.modules[__name__] = metrics
