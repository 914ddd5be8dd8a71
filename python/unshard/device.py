"""Tensors read straight into the memory of a GPU: from the shards through pinned buffers, by the library's threads."""

from __future__ import annotations

import ctypes as c
from typing import Any, Sequence

from . import _library as native
from ._library import lib
from .process import Process
from .session import Tensor, must

STORED = -1  # the tensor's own dtype
WAY_SUITED, WAY_CACHE = 0, 1  # by which way bytes come from storage
BUFFER_BYTES, MOST_BUFFERS = 2 << 20, 32


class Transfer:
    """What Device.begin returns."""

    def __init__(self, device: Device, handle: c.c_void_p, keep: Any):
        self._device, self._number, self._keep = device, handle.value, keep

    def wait(self) -> None:
        """Until the bytes are in the GPU's memory."""
        self._device.process.must_be_this("transfer")
        err = native.ErrorStruct()
        try:
            must(lib.unshard_transfer_wait(self._number, c.byref(err)), err)
        finally:
            self.close()

    def close(self) -> None:
        """Waits too, and forgets what failed. Closing twice is allowed."""
        # A handle is an address: once freed, it may be the next transfer's.
        number, self._number = self._number, None
        if number in self._device.begun:
            self._device.begun.remove(number)
            if self._device.process.is_this():
                lib.unshard_transfer_free(number)

    __del__ = close


class Device:
    """One GPU to read into, by CUDA's number. Holds pinned buffers until close(), no more than n_bytes need, if it is
    told how many are going to be read. Any number of threads may use it. A forked process opens its own."""

    def __init__(self, ordinal: int, n_threads: int = 0, way: int = WAY_SUITED, n_bytes: int | None = None):
        # Transfers that have not ended: their handles, no Python objects, so that the order in which the garbage
        # collector ends them does not matter.
        self.begun: set[int] = set()
        self.process = Process()
        self._handle: c.c_void_p | None = c.c_void_p()
        err = native.ErrorStruct()
        buffers = MOST_BUFFERS if n_bytes is None else min(MOST_BUFFERS, n_bytes // BUFFER_BYTES + 1)
        options = native.DeviceOptions(n_threads=n_threads, way=way, buffer_bytes=BUFFER_BYTES, n_buffers=buffers)
        must(lib.unshard_device_open(ordinal, c.byref(options), c.byref(self._handle), c.byref(err)), err)

    def begin(self, boxes: Sequence[tuple[Tensor, Sequence[int], Sequence[int], int, int]], stream: int,
              keep: Any) -> Transfer:
        """Read boxes into the GPU's memory, behind what is queued on the stream (a cudaStream_t). boxes, at least one:
        (tensor, lo, length, address, bytes), all of one list of tensors, which stays open. keep: the memory's owner."""
        def sizes(values):
            return (c.c_uint64 * max(1, len(values)))(*values)

        self.process.must_be_this("device")
        array = (native.DeviceBox * len(boxes))(*[
            native.DeviceBox(i=t.index, lo=sizes(lo), len=sizes(length), dtype=STORED, to=at, to_bytes=n_bytes)
            for t, lo, length, at, n_bytes in boxes])
        handle, err = c.c_void_p(), native.ErrorStruct()
        must(lib.unshard_device_read(self._handle, boxes[0][0].opened.handle, array, len(boxes),
                                     c.byref(c.c_void_p(stream)), c.byref(handle), c.byref(err)), err)
        self.begun.add(handle.value or 0)  # never NULL
        return Transfer(self, handle, keep)

    def close(self) -> None:
        """Waits for what is under way. Closing twice is allowed."""
        handle, self._handle = getattr(self, "_handle", None), None
        if handle and self.process.is_this():
            while self.begun:
                lib.unshard_transfer_free(self.begun.pop())
            lib.unshard_device_close(handle)

    __del__ = close
