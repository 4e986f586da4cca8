"""Large buffers that a CPU kernel is the first to write: the system makes their pages under it.

glibc returns blocks above 32 MiB to the system when they are freed, and gets new pages for the next
one. Their first writing takes as long as a kernel's own work, in every call of a graph. To time a
launch as it is in the graph, such buffers are given back before each sample.
"""

import ctypes
from collections.abc import Iterable

import torch
from torch.multiprocessing.reductions import StorageWeakRef

MIN_BYTES = 32 << 20  # DEFAULT_MMAP_THRESHOLD_MAX of glibc on 64 bits
_MADV_DONTNEED = 4
_PAGE = 1 << 12


class StoragesSeen:
    """The storages of a graph's run so far. An address alone says little: it is reused."""

    def __init__(self) -> None:
        self._seen: dict[int, StorageWeakRef] = {}

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._seen[storage.data_ptr()] = StorageWeakRef(storage)

    def fresh(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Those in large storages of the CPU that are new."""
        found = []
        for tensor in tensors:
            storage = tensor.untyped_storage()
            known = self._seen.get(storage.data_ptr())
            is_new = known is None or known.expired()
            if is_new and tensor.device.type == "cpu" and storage.nbytes() >= MIN_BYTES:
                found.append(tensor)
        return found


def give_back(tensors: Iterable[torch.Tensor]) -> None:
    """Drop the pages, and with them what the tensors hold; zeros come back."""
    libc = ctypes.CDLL(None, use_errno=True)
    for tensor in tensors:
        storage = tensor.untyped_storage()
        start = -(-storage.data_ptr() // _PAGE) * _PAGE
        end = (storage.data_ptr() + storage.nbytes()) // _PAGE * _PAGE
        address, length = ctypes.c_void_p(start), ctypes.c_size_t(end - start)
        if libc.madvise(address, length, _MADV_DONTNEED):
            raise OSError(ctypes.get_errno(), "madvise: the buffer's pages cannot be given back")
