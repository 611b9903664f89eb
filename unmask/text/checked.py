"""Detect damaged files: every block of 64 KiB has a CRC-32 that is verified before a process first uses the block.

The checksums of a file `F` are in `F.sum`, four bytes per block. A file of up to `EAGER_BYTES` bytes is verified when it is
opened. In a larger file, each block is verified just before its first use, so the time to open a file does not depend on its
size, and no value of a damaged block is ever returned.

Not detected: a block that changes after this process has verified it (the next process detects it), damage from before the
checksums were written, and deliberate changes, because a person who edits a file can edit its checksums too.
"""

import operator
import stat
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from unmask.errors import UserError
from unmask.files import new_file, write_bytes

BLOCK_BYTES = 1 << 16  # the system reads ahead at least this much when one value of a mapped file is accessed
EAGER_BYTES = 16 << 20  # a file up to this size is verified when it is opened, in 5 to 20 ms


def checksums_path(path: Path) -> Path:
    return path.with_name(path.name + ".sum")


def compute_checksums(file: BinaryIO) -> bytes:
    return np.array([zlib.crc32(block) for block in iter(lambda: file.read(BLOCK_BYTES), b"")], "<u4").tobytes()


def write_checksums(path: Path, partial: Path | None = None) -> None:
    """Write and sync the checksums of `path`; `partial` is its temporary name if it is still being written."""
    with open(partial or path, "rb") as file:
        write_bytes(checksums_path(path), compute_checksums(file))


def write_folder_checksums(folder: Path) -> None:
    for path in sorted(p for p in folder.iterdir() if p.suffix != ".sum"):
        write_checksums(path)


def verify_folder(folder: Path, hint: str) -> None:
    """Verify every file of a folder that was written with checksums. Hidden files (.DS_Store) are ignored."""
    for path in sorted({p.with_suffix("") if p.suffix == ".sum" else p for p in folder.glob("[!.]*")}):
        read_checked(path, hint)


def read_checked(path: Path, hint: str, has_checksums: bool = True) -> bytes:
    """Read a small file into memory and verify it."""
    try:
        size = path.stat().st_size
        ChecksummedFile(path, size, hint, has_checksums).verify(0, size)
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"this file is damaged: {path}: {error.strerror}", hint=hint) from None


def write_with_checksums(path: Path, blocks: Iterable[bytes]) -> None:
    """Write a file after its checksums. Two processes may do this at the same time, because they write the same bytes."""
    with new_file(path) as file:
        for block in blocks:
            file.write(block)
        file.flush()
        write_checksums(path, Path(file.name))


class ChecksummedFile:
    """A file of `size` bytes that is verified block by block. `hint` is the command that rebuilds it."""

    def __init__(self, path: Path, size: int, hint: str, has_checksums: bool = True):
        """`has_checksums`: False for a file of an older version without checksums; only its size is compared."""
        self.path, self.hint = path, hint
        if (actual := self._size(path)) != size:
            raise self.damaged(f"it has {actual:,} bytes, not {size:,}")
        blocks = -(-size // BLOCK_BYTES)
        self._verified = bytearray(blocks) if has_checksums else bytearray(b"\1") * blocks
        # A file that is empty now may have been longer: then its checksums exist.
        expects_checksums = has_checksums and (blocks > 0 or checksums_path(path).exists())
        if expects_checksums and self._size(checksums_path(path)) != 4 * blocks:
            raise self.damaged(f"{checksums_path(path).name} does not have one checksum per block")
        if has_checksums and blocks:
            self._checksums = np.memmap(checksums_path(path), "<u4", "r")
        if size <= EAGER_BYTES:
            self.verify(0, size)

    def verify(self, start: int, end: int) -> None:
        """Verify the blocks that contain bytes [start, end) and were not verified before."""
        first, last = start // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        if self._verified.find(0, first, last) < 0:
            return
        try:
            with open(self.path, "rb") as file:  # read, not mapped: mapped pages would count as this process's memory
                file.seek(first * BLOCK_BYTES)
                for block in range(first, last):
                    if zlib.crc32(file.read(BLOCK_BYTES)) != self._checksums[block]:
                        raise self.damaged(f"bytes from {block * BLOCK_BYTES:,} on do not match their checksum")
                    self._verified[block] = 1
        except OSError as error:
            raise self.damaged(str(error)) from None

    def read(self, dtype: np.dtype[Any], start: int, end: int) -> np.ndarray:
        """Read values [start, end) into memory."""
        self.verify(start * dtype.itemsize, end * dtype.itemsize)
        return np.fromfile(self.path, dtype, end - start, offset=start * dtype.itemsize)

    def map(self, dtype: np.dtype[Any], width: int = 1) -> "np.ndarray | LazyArray":
        """Map the file as a read-only array of shape (n,), or (n, width) if `width` is above 1."""
        if not self._verified:
            values = np.zeros(0, dtype)  # an empty file cannot be mapped
        else:
            # A plain ndarray over the map: slicing np.memmap itself costs several microseconds each time.
            values = np.asarray(np.memmap(self.path, dtype, "r"))
        values = values.reshape(-1, width) if width > 1 else values
        return values if self._verified.find(0) < 0 else LazyArray(self, values)

    def damaged(self, reason: str) -> UserError:
        return UserError(f"this file is damaged: {self.path}: {reason}", hint=self.hint)

    def _size(self, path: Path) -> int:
        try:
            status = path.stat()
        except OSError as error:
            raise self.damaged(error.strerror or str(error)) from None
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would block
            raise self.damaged("not a regular file")
        return status.st_size


class LazyArray:
    """A memory-mapped array of a large file. Indexing and slicing verify the blocks and return plain numpy.

    There is no arithmetic: `array[:]` and `np.asarray` verify and return the whole array.
    """

    def __init__(self, file: ChecksummedFile, values: np.ndarray):
        self._file, self._values = file, values
        self._row_bytes = values.strides[0]
        self.dtype, self.shape = values.dtype, values.shape

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, key: Any) -> Any:
        for start, end in self._ranges(key):
            self._file.verify(start * self._row_bytes, end * self._row_bytes)
        return self._values[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self[:], dtype, copy=copy)

    def _ranges(self, key: Any) -> list[tuple[int, int]]:
        """Return the ranges of rows that have to be verified for a key."""
        total = len(self._values)
        if isinstance(key, slice):
            rows = range(total)[key]
            return [(min(rows[0], rows[-1]), max(rows[0], rows[-1]) + 1)] if rows else []
        if isinstance(key, np.ndarray) and key.dtype != bool:
            step = BLOCK_BYTES // self._row_bytes  # rows per block: one row is enough to verify its block
            return [(int(n) * step, int(n) * step + 1) for n in np.unique(key % total // step)]
        try:
            row = operator.index(key)
        except TypeError:  # a boolean mask, or several axes
            return [(0, total)]
        row += total if row < 0 else 0
        return [(row, row + 1)] if 0 <= row < total else []  # numpy raises IndexError for the rest
