"""Files whose bytes go to memory of devices, and come from there.

    import outboard.io
    with outboard.io.open("weights.bin") as file:
        file.read(tensor)                   # or an address and a number of bytes

Through a server that has the file as well, the server reads and writes it (docs/files.md). The same program works without Outboard: the file is read
here, and its bytes are copied by the driver library that the process has.
"""

import builtins
import ctypes
import os
from typing import Any, List, Optional, Tuple, Union

__all__ = ["CudaError", "File", "open"]

# The table of functions that Outboard's driver library has for files, as `cuGetExportTable` takes its name, and the number of its form.
_TABLE = b"outboard-files01"
_FORM = 1
# Bytes of a copy where the table is missing.
_PIECE = 8 << 20
_CONTEXT = 1  # CU_POINTER_ATTRIBUTE_CONTEXT
_KIND = 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
_HOST = 1  # CU_MEMORYTYPE_HOST
_MODES = {"r": os.O_RDONLY, "r+": os.O_RDWR, "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC}

Memory = Union[int, Any]


class CudaError(RuntimeError):
    """The device or its memory failed; `status` is the `CUresult`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CUDA error {status}")
        self.status = status


def open(path: Union[str, "os.PathLike[str]"], mode: str = "r") -> "File":
    """Opens a file: `r`, `r+`, `w` or `w+`, with or without `b`."""
    flags = _MODES.get(mode.replace("b", ""))
    if flags is None:
        raise ValueError(f"files are opened with {', '.join(_MODES)}, not {mode!r}")
    return File(os.open(path, flags | os.O_CLOEXEC, 0o666), writable=flags != os.O_RDONLY)


class File:
    """An open file, with a position as other files have it."""

    def __init__(self, descriptor: int, writable: bool) -> None:
        """Of a descriptor, which is closed with it."""
        self._descriptor, self._position = -1, 0
        try:
            self._way = _Outboard.of(descriptor, writable) or _Here(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def read(self, memory: Memory, bytes: Optional[int] = None) -> int:
        """Reads into memory of a device, from the position on; how many bytes there were, fewer only at the file's end.

        `memory` is an address with a number of `bytes`, or an array or tensor, which is filled unless `bytes` says less.
        """
        moved = self.pread(self._position, memory, bytes)
        self._position += moved
        return moved

    def write(self, memory: Memory, bytes: Optional[int] = None) -> int:
        """Writes memory of a device, to the position and behind; how many bytes."""
        moved = self.pwrite(self._position, memory, bytes)
        self._position += moved
        return moved

    def pread(self, offset: int, memory: Memory, bytes: Optional[int] = None) -> int:
        """As `read`, from a place of the file; the position stays."""
        return self._all("read", offset, *_place(memory, bytes))

    def pwrite(self, offset: int, memory: Memory, bytes: Optional[int] = None) -> int:
        """As `write`, to a place of the file; the position stays."""
        return self._all("write", offset, *_place(memory, bytes))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Sets the position, from the beginning, the position or the end; where it is then."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: os.fstat(self._descriptor).st_size}[whence]
        if base + offset < 0:
            raise ValueError("there is nothing before a file's beginning")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def sync(self) -> None:
        """Has what was written stored for good."""
        self._way.sync()

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Closes it; to close it again does nothing."""
        if self._descriptor >= 0:
            self._way.close()
            os.close(self._descriptor)
            self._descriptor = -1

    def statistics(self) -> "dict[str, int]":
        """Bytes read and written by a server itself, and by this process."""
        names = ("read_by_server", "read_here", "written_by_server", "written_here")
        return dict(zip(names, self._way.statistics()))

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            # Nobody is left to be told.
            pass

    def _all(self, what: str, offset: int, address: int, bytes: int) -> int:
        if self._descriptor < 0:
            raise ValueError("the file is closed")
        done = 0
        while done < bytes:
            moved = getattr(self._way, what)(address + done, bytes - done, offset + done)
            if moved == 0:
                break
            done += moved
        return done


def _place(memory: Memory, bytes: Optional[int]) -> Tuple[int, int]:
    """Address and bytes of memory of a device."""
    if isinstance(memory, int):
        if bytes is None:
            raise TypeError("an address needs a number of bytes")
        return memory, bytes
    facts = getattr(memory, "__cuda_array_interface__", None)
    if facts is None:
        raise TypeError(f"{type(memory).__name__} is no memory of a device: an address, or what has __cuda_array_interface__, such as tensors of PyTorch")
    size = int(facts["typestr"][2:])
    all, step = size, size
    for extent in facts["shape"]:
        all *= extent
    for extent, stride in zip(reversed(facts["shape"]), reversed(facts.get("strides") or ())):
        if extent > 1 and stride != step:
            raise ValueError("the array's bytes do not follow each other: make it contiguous")
        step *= extent
    if bytes is not None and bytes > all:
        raise ValueError(f"the array has {all} bytes, not {bytes}")
    return facts["data"][0], all if bytes is None else bytes


def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _call(function: Any, *arguments: Any) -> None:
    status = function(*arguments)
    if status != 0:
        raise CudaError(status)


def _checked(errno: int) -> None:
    if errno != 0:
        raise OSError(errno, os.strerror(errno))


class _Outboard:
    """By the functions of Outboard's driver library."""

    def __init__(self, functions: List[int], descriptor: int, writable: bool) -> None:
        word, signed, out = ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p
        move = ctypes.CFUNCTYPE(ctypes.c_int, word, word, ctypes.c_size_t, signed, out)
        by_name = ctypes.CFUNCTYPE(ctypes.c_int, word)
        self._close, self._sync = by_name(functions[1]), by_name(functions[4])
        self._read, self._write = move(functions[2]), move(functions[3])
        self._statistics = ctypes.CFUNCTYPE(ctypes.c_int, word, out)(functions[5])
        file = ctypes.c_uint64()
        opened = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint32, out)(functions[0])
        _checked(opened(descriptor, int(writable), ctypes.byref(file)))
        self._file = file.value

    @staticmethod
    def of(descriptor: int, writable: bool) -> "Optional[_Outboard]":
        """If the process has that driver library."""
        table = ctypes.POINTER(ctypes.c_size_t)()
        try:
            status = _driver().cuGetExportTable(ctypes.byref(table), _TABLE)
        except (OSError, AttributeError):
            return None
        if status != 0 or not table or table[1] != _FORM:
            return None
        return _Outboard(table[2 : table[0] // ctypes.sizeof(ctypes.c_size_t)], descriptor, writable)

    def _move(self, function: Any, address: int, bytes: int, offset: int) -> int:
        moved = ctypes.c_ssize_t()
        _call(function, self._file, address, bytes, offset, ctypes.byref(moved))
        _checked(max(0, -moved.value))
        return moved.value

    def read(self, address: int, bytes: int, offset: int) -> int:
        return self._move(self._read, address, bytes, offset)

    def write(self, address: int, bytes: int, offset: int) -> int:
        return self._move(self._write, address, bytes, offset)

    def sync(self) -> None:
        _checked(self._sync(self._file))

    def close(self) -> None:
        _checked(self._close(self._file))

    def statistics(self) -> List[int]:
        counts = (ctypes.c_uint64 * 4)()
        _checked(self._statistics(self._file, ctypes.byref(counts)))
        return list(counts)


class _Here:
    """By system calls, and copies of whatever driver library the process has."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._counts = [0, 0]

    def read(self, address: int, bytes: int, offset: int) -> int:
        data = os.pread(self._descriptor, min(bytes, _PIECE), offset)
        if data:
            self._copy(address, ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value, len(data), to_device=True)
        self._counts[0] += len(data)
        return len(data)

    def write(self, address: int, bytes: int, offset: int) -> int:
        piece = ctypes.create_string_buffer(min(bytes, _PIECE))
        self._copy(address, ctypes.addressof(piece), len(piece), to_device=False)
        written = os.pwrite(self._descriptor, builtins.memoryview(piece), offset)
        self._counts[1] += written
        return written

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        pass

    def statistics(self) -> List[int]:
        return [0, self._counts[0], 0, self._counts[1]]

    def _copy(self, address: int, host: Optional[int], bytes: int, to_device: bool) -> None:
        """In the context that has the memory, whichever is current."""
        driver = _driver()
        context, kind = ctypes.c_void_p(), ctypes.c_int()
        device, size = ctypes.c_uint64(address), ctypes.c_size_t(bytes)
        _call(driver.cuPointerGetAttribute, ctypes.byref(kind), _KIND, device)
        if kind.value == _HOST:
            to, source = (address, host) if to_device else (host, address)
            ctypes.memmove(to, source, bytes)
            return
        _call(driver.cuPointerGetAttribute, ctypes.byref(context), _CONTEXT, device)
        _call(driver.cuCtxPushCurrent_v2, context)
        try:
            if to_device:
                _call(driver.cuMemcpyHtoD_v2, device, ctypes.c_void_p(host), size)
            else:
                _call(driver.cuMemcpyDtoH_v2, ctypes.c_void_p(host), device, size)
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(context))
