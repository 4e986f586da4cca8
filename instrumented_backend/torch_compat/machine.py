"""The build of torch, how to compile against it, the devices, and the rank of the process."""

import ctypes
import multiprocessing
import os
import sys
from collections.abc import Iterable
from pathlib import Path


def version() -> str:
    import torch

    return str(torch.__version__)


def rank() -> int:
    """The process's rank in its job; 0 outside distributed jobs."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    text = os.environ.get("RANK", "0")
    return int(text) if text.isdecimal() else 0


def worker() -> str | None:
    """What the process is called by the one that made it; None if Python did not make it."""
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    if info is not None:
        return f"DataLoader worker {info.id}"
    if multiprocessing.parent_process() is None:
        return None
    return multiprocessing.current_process().name


def device_names(kinds: Iterable[str]) -> list[str]:
    """``["cuda"]`` → the names of its devices that the program used; other kinds stay as is."""
    import torch

    names: list[str] = []
    for kind in kinds:
        if kind == "cuda" and torch.cuda.is_initialized():
            names.append(torch.cuda.get_device_name())
        else:
            names.append(kind)
    return names


def gpu_name(device: int) -> str | None:
    """None where CUDA is not in use."""
    import torch

    return torch.cuda.get_device_name(device) if torch.cuda.is_initialized() else None


def float32_matmul_precision() -> str | None:
    """How products of float32 are computed on the GPU; None where none is in use."""
    import torch

    if not torch.cuda.is_initialized():
        return None
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # set by backend and by operator, which torch won't tell in one word
        return None


def synchronize() -> None:
    """Wait until the current GPU has done all that was asked of it."""
    import torch

    torch.cuda.synchronize()


def is_capturing() -> bool:
    """Is a CUDA graph being recorded on this thread's stream?"""
    import torch

    return torch.cuda.is_current_stream_capturing()


def cuda_functions(*names: str) -> list[int] | None:
    """The addresses of C functions in the CUDA libraries that this torch has loaded.

    Those of CUDA's runtime, and torch's own with a stable interface (``aoti_torch_*``). None where
    torch was built without CUDA, or one is not there.
    """
    try:
        # Not loaded by this: a build of torch that has it loads it with `import torch`. What it was
        # linked with is searched, too.
        library = ctypes.CDLL(
            str(_torch_folder() / "lib" / "libtorch_cuda.so"), os.RTLD_NOLOAD | os.RTLD_LAZY
        )
        pointers = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
    except (OSError, AttributeError):
        return None
    return [pointer for pointer in pointers if pointer is not None]


def build_id() -> str:
    """Which build of torch this is: version, source commit, C++ ABI."""
    import torch

    return f"{torch.__version__} {torch.version.git_version} {_cxx11_abi()}"


def _cxx11_abi() -> int:
    import torch

    return int(torch.compiled_with_cxx11_abi())


def compile_flags() -> list[str]:
    """For a C++ file that includes torch's own headers, without importing cpp_extension."""
    return [f"-D_GLIBCXX_USE_CXX11_ABI={_cxx11_abi()}", f"-I{_torch_folder() / 'include'}"]


def link_flags() -> list[str]:
    return [f"-L{_torch_folder() / 'lib'}", "-ltorch_cpu", "-lc10"]


def _torch_folder() -> Path:
    import torch

    return Path(torch.__file__).parent


def folder() -> str:
    return str(_torch_folder())
