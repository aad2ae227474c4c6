"""Find the bad items of a batch that failed as a whole, in few passes, with every good one succeeding.

A binary search costs log2(n) passes, and one more runs all the halves that were set aside. So one bad
item costs at most log2(n) + 1 passes, and all of them together at most 2 n.
"""

from collections.abc import Callable, Generator

Blame = Callable[[int, bool], None]  # (index, whether it was only seen failing in company)


def halve(count: int, blame: Blame) -> Generator[list[int], bool, None]:
    """Yield the indexes to call together, first all of them; send whether the call succeeded.

    Right after a failed call `blame` may be told an index: the error of the last failed call is its own,
    or, when the flag is set, likely its own: it was not run alone, because its mates came first.
    """
    passes, rest = 0, list(range(count))
    while rest:
        passes += 1
        if (yield rest):
            return
        # Another search, the call after it, and then each of the others alone must fit the bound.
        if passes + _narrow_max(len(rest)) + len(rest) > 2 * count:
            for index in rest:
                if not (yield [index]):
                    blame(index, False)
            return
        spent, rest = yield from _narrow(rest, blame)
        passes += spent


def _narrow_max(count: int) -> int:
    """Return the most calls a search among `count` takes, the one that confirms it included."""
    return (count - 1).bit_length() + 1 if count > 1 else 0


def _narrow(suspects: list[int], blame: Blame) -> Generator[list[int], bool, tuple[int, list[int]]]:
    """Close in on one bad item among suspects that failed together; return (passes, the set aside)."""
    passes, aside, alone = 0, list[int](), len(suspects) == 1
    while len(suspects) > 1:
        middle = (len(suspects) + 1) // 2
        left, right = suspects[:middle], suspects[middle:]
        passes += 1
        if (yield left):
            suspects, alone = right, False
        else:
            suspects, aside, alone = left, right + aside, len(left) == 1
    if alone:
        blame(suspects[0], False)
    elif aside:
        blame(suspects[0], True)
    else:
        passes += 1
        if not (yield suspects):
            blame(suspects[0], False)
    return passes, aside
