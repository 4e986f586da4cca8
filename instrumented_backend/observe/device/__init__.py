"""GPU time, and time of C++ kernels."""
