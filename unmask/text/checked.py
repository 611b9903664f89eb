"""Files that notice damage: a CRC-32 for every block of 64 KiB, compared before a process first uses the block.

The checksums of a file `F` are in `F.sum`, four bytes per block. A file of up to `EAGER_BYTES` bytes is verified whole when it
is opened. Of a larger one each block is verified just before its first use, so opening costs the same whatever its size,
and no value of a damaged block is ever returned. What this does not see: a block that changes after it was verified by
this process (the next process sees it), damage from before the checksums were written, and deliberate changes, as
whoever edits a file can edit its checksums too.
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

BLOCK_BYTES = 1 << 16  # bytes; no more than the system reads ahead anyway when one value of a mapped file is asked for
EAGER_BYTES = 16 << 20  # bytes; a file up to this size is verified when it is opened: 5 to 20 ms


def checksums_path(path: Path) -> Path:
    return path.with_name(path.name + ".sum")


def compute_checksums(file: BinaryIO) -> bytes:
    return np.array([zlib.crc32(block) for block in iter(lambda: file.read(BLOCK_BYTES), b"")], "<u4").tobytes()


def write_checksums(path: Path, of: Path | None = None) -> None:
    """The checksums of the file `path`, which is still called `of`; synced."""
    with open(of or path, "rb") as file:
        write_bytes(checksums_path(path), compute_checksums(file))


def write_folder_checksums(folder: Path) -> None:
    """The checksums of every file in a folder."""
    for path in sorted(p for p in folder.iterdir() if p.suffix != ".sum"):
        write_checksums(path)


def verify_folder(folder: Path, hint: str) -> None:
    """Every file of a folder that was written with checksums, whole; hidden files (a desktop's .DS_Store) are not ours."""
    for path in sorted({p.with_suffix("") if p.suffix == ".sum" else p for p in folder.glob("[!.]*")}):
        read_checked(path, hint)


def read_checked(path: Path, hint: str, summed: bool = True) -> bytes:
    """A small file, whole and verified."""
    try:
        size = path.stat().st_size
        ChecksummedFile(path, size, hint, summed).verify(0, size)
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"this file is damaged: {path}: {error.strerror}", hint=hint) from None


def write_with_checksums(path: Path, blocks: Iterable[bytes]) -> None:
    """A file with its checksums, which are there first. Two processes that do the same at once write the same bytes."""
    with new_file(path) as file:
        for block in blocks:
            file.write(block)
        file.flush()
        write_checksums(path, Path(file.name))


class ChecksummedFile:
    """A file of `size` bytes and which of its blocks were verified. `hint` says how to rebuild the file."""

    def __init__(self, path: Path, size: int, hint: str, summed: bool = True):
        """`summed`: False for a file of the time before checksums, of which only the size is compared."""
        self.path, self.hint = path, hint
        found = self._size(path)
        if found != size:
            raise self.damaged(f"it has {found:,} bytes, not {size:,}")
        blocks = -(-size // BLOCK_BYTES)
        self._seen = bytearray(blocks) if summed else bytearray(b"\1") * blocks
        known = summed and (blocks > 0 or checksums_path(path).exists())  # an empty file may have been a longer one
        if known and self._size(checksums_path(path)) != 4 * blocks:
            raise self.damaged(f"{checksums_path(path).name} does not have one checksum per block")
        if summed and blocks:
            self._sums = np.memmap(checksums_path(path), "<u4", "r")
        if size <= EAGER_BYTES:
            self.verify(0, size)

    def verify(self, start: int, end: int) -> None:
        """Compare the blocks that hold bytes [start, end), those that were not compared before."""
        first, last = start // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        if self._seen.find(0, first, last) < 0:
            return
        try:
            with open(self.path, "rb") as file:  # read, not mapped: mapped pages would count as this process's memory
                file.seek(first * BLOCK_BYTES)
                for block in range(first, last):
                    if zlib.crc32(file.read(BLOCK_BYTES)) != self._sums[block]:
                        raise self.damaged(f"bytes from {block * BLOCK_BYTES:,} on do not match their checksum")
                    self._seen[block] = 1
        except OSError as error:
            raise self.damaged(str(error)) from None

    def read(self, dtype: np.dtype[Any], start: int, end: int) -> np.ndarray:
        """Values [start, end), read into memory."""
        self.verify(start * dtype.itemsize, end * dtype.itemsize)
        return np.fromfile(self.path, dtype, end - start, offset=start * dtype.itemsize)

    def map(self, dtype: np.dtype[Any], width: int = 1) -> "np.ndarray | LazyArray":
        """The whole file as a read-only array, memory-mapped; (n, width) when that is above 1."""
        if not self._seen:
            values = np.zeros(0, dtype)  # an empty file cannot be mapped
        else:
            # A plain ndarray over the map: slicing np.memmap itself costs several microseconds each time.
            values = np.asarray(np.memmap(self.path, dtype, "r"))
        values = values.reshape(-1, width) if width > 1 else values
        return values if self._seen.find(0) < 0 else LazyArray(self, values)

    def damaged(self, why: str) -> UserError:
        return UserError(f"this file is damaged: {self.path}: {why}", hint=self.hint)

    def _size(self, path: Path) -> int:
        try:
            found = path.stat()
        except OSError as error:
            raise self.damaged(error.strerror or str(error)) from None
        if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for ever
            raise self.damaged("not a regular file")
        return found.st_size


class LazyArray:
    """A mapped array of a large file: an index or a slice of it is verified, then given as plain numpy.

    It has no arithmetic of its own: `array[:]` or `np.asarray` give the whole, verified.
    """

    def __init__(self, file: ChecksummedFile, values: np.ndarray):
        self._file, self._values = file, values
        self._bytes = values.strides[0]  # of one row
        self.dtype, self.shape = values.dtype, values.shape

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, key: Any) -> Any:
        for start, end in self._ranges(key):
            self._file.verify(start * self._bytes, end * self._bytes)
        return self._values[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self[:], dtype, copy=copy)

    def _ranges(self, key: Any) -> list[tuple[int, int]]:
        """Rows that a key reads."""
        total = len(self._values)
        if isinstance(key, slice):
            rows = range(total)[key]
            return [(min(rows[0], rows[-1]), max(rows[0], rows[-1]) + 1)] if rows else []
        if isinstance(key, np.ndarray) and key.dtype != bool:
            each = BLOCK_BYTES // self._bytes
            return [(int(n) * each, int(n) * each + 1) for n in np.unique(key % total // each)]
        try:
            row = operator.index(key)
        except TypeError:  # a mask, or several axes
            return [(0, total)]
        row += total if row < 0 else 0
        return [(row, row + 1)] if 0 <= row < total else []  # numpy says what is wrong with any other
