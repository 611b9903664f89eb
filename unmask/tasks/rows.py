"""Texts that are longer than a row: cut to fit, or read in windows."""


def fit_pair(a: list[int], b: list[int], room: int) -> tuple[list[int], list[int]]:
    """Both, cut at the end until they fit; the longer one gives way first.

    >>> fit_pair([1, 2, 3, 4, 5], [6, 7], 5)
    ([1, 2, 3], [6, 7])
    >>> fit_pair([1, 2, 3, 4], [5, 6, 7, 8], 5)
    ([1, 2, 3], [5, 6])
    """
    keep_b = min(len(b), max(room // 2, room - len(a)))
    return a[: room - keep_b], b[:keep_b]


def windows(ids: list[int], size: int) -> list[list[int]]:
    """As few windows of `size` as cover everything, evenly spread.

    >>> windows([1, 2, 3, 4, 5], 3)
    [[1, 2, 3], [3, 4, 5]]
    >>> windows([1, 2], 3)
    [[1, 2]]
    """
    count = -(-len(ids) // size)
    if count < 2:
        return [ids]
    starts = [round(n * (len(ids) - size) / (count - 1)) for n in range(count)]
    return [ids[start : start + size] for start in starts]
