"""Lane: the line of queued jobs of one task, one priority and one tenant, 24 bytes a job."""

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from heapq import nlargest
from itertools import islice
from operator import le, lt
from typing import Final

from forebay.brokers.sqlite.heap import LazyHeap
from forebay.brokers.sqlite.journal import Journal
from forebay.brokers.sqlite.lane_ends import LaneEnds
from forebay.core.job import AGEING_S

CHUNK_JOBS: Final = 4096


class Chunk:
    """Up to CHUNK_JOBS neighbours of a lane. A negative sequence is a job that left from the middle."""

    __slots__ = ("dead", "ends", "ends_min", "readies", "seqs")

    def __init__(self) -> None:
        self.seqs = array("q")
        self.readies = array("d")
        self.ends = array("d")
        self.ends_min = math.inf
        self.dead = 0

    def kill(self, at: int) -> None:
        """Mark the job at `at` as gone."""
        self.seqs[at] = -self.seqs[at]
        self.dead += 1

    def revive(self, at: int) -> None:
        """Take `kill` back."""
        self.seqs[at] = -self.seqs[at]
        self.dead -= 1


class Lane:
    """The queued jobs of one task, priority and tenant, in the order of their keys."""

    def __init__(self, priority: int, journal: Journal, ending: LazyHeap, ends: LaneEnds) -> None:
        self.add_s = priority * AGEING_S
        self._journal = journal
        self._ending = ending  # ends of the jobs beside the line and of the lapsed ones
        self._ends = ends
        self.soonest = math.inf  # no job in the line ends before; LaneEnds keeps it
        self._chunks: list[Chunk] = []
        self._at = 0  # first job of the first chunk that is still here
        self._last = (-math.inf, -math.inf, -1)  # key, ready_at and sequence of the line's end
        self._live = 0  # jobs in the line
        self._beside_max = -math.inf  # no job that stands beside the line, or lapsed, has a higher key
        self.odd = LazyHeap()  # by key
        self._odd_ready: dict[int, float] = {}
        self.lapsed: dict[int, float] = {}  # stepped over by a lease, not yet ended by a sweep: ready_at

    def __len__(self) -> int:
        return self._live + len(self.odd) + len(self.lapsed)

    def append(self, seq: int, ready_at: float, end: float) -> bool:
        """Put a job in its place; returns False when it was not the end of the line."""
        key = ready_at + self.add_s
        last = self._last
        if key < last[0] or ready_at < last[1] or seq <= last[2]:
            self.push_odd(seq, ready_at)
            return False
        self._last = (key, ready_at, seq)
        self._live += 1
        chunk = self._chunks[-1] if self._chunks else None
        if chunk is None or len(chunk.seqs) >= CHUNK_JOBS:
            chunk = Chunk()
            self._chunks.append(chunk)
        chunk.seqs.append(seq)
        chunk.readies.append(ready_at)
        chunk.ends.append(end)
        if end < chunk.ends_min:
            chunk.ends_min = end
            if end < self.soonest:
                self._ends.lower(self, end)
        return True

    def extend(self, seqs: list[int], readies: list[float], ends: list[float]) -> bool:
        """Put jobs at the end of the line; returns False, and does nothing, when one is out of order."""
        add_s, last = self.add_s, self._last
        in_order = (
            seqs[0] > last[2]
            and readies[0] >= last[1]
            and readies[0] + add_s >= last[0]
            and all(map(lt, seqs, islice(seqs, 1, None)))
            and all(map(le, readies, islice(readies, 1, None)))
        )
        if not in_order:
            return False
        self._last = (readies[-1] + add_s, readies[-1], seqs[-1])
        self._live += len(seqs)
        at = 0
        while at < len(seqs):
            chunk = self._chunks[-1] if self._chunks else None
            if chunk is None or len(chunk.seqs) >= CHUNK_JOBS:
                chunk = Chunk()
                self._chunks.append(chunk)
            until = at + CHUNK_JOBS - len(chunk.seqs)
            chunk.seqs.extend(seqs[at:until])
            chunk.readies.extend(readies[at:until])
            chunk.ends.extend(ends[at:until])
            earliest = min(ends[at:until])
            chunk.ends_min = min(chunk.ends_min, earliest)
            if earliest < self.soonest:
                self._ends.lower(self, earliest)
            at = until
        return True

    def push_odd(self, seq: int, ready_at: float) -> None:
        """Put a job beside the line."""
        self.push_back(seq, ready_at)
        self._journal.undo_by(self._drop_odd, seq)

    def _drop_odd(self, seq: int) -> None:
        self.odd.discard(seq)
        self._odd_ready.pop(seq, None)

    def _take_odd(self, seq: int) -> float:
        ready_at = self._odd_ready[seq]
        self._journal.undo_by(self.push_back, seq, ready_at)
        self._drop_odd(seq)
        return ready_at

    def push_back(self, seq: int, ready_at: float) -> None:
        """Put an odd job back without a trace in the journal."""
        key = ready_at + self.add_s
        self._beside_max = max(self._beside_max, key)
        self.odd.push(key, seq)
        self._odd_ready[seq] = ready_at

    def head(self, now: float) -> tuple[float, int] | None:
        """Return (key, seq) of the most urgent job that has not lapsed; the lapsed ones step aside."""
        line, odd = self._line_head(now), self._odd_head(now)
        if line is None or (odd is not None and odd < line):
            return odd
        return line

    def _line_head(self, now: float) -> tuple[float, int] | None:
        while self._chunks:
            chunk = self._chunks[0]
            seqs, at = chunk.seqs, self._at
            while at < len(seqs):
                seq = seqs[at]
                if seq > 0:
                    if chunk.ends[at] > now:
                        self._at = at
                        return chunk.readies[at] + self.add_s, seq
                    self._ending.push(chunk.ends[at], seq)
                    self._live -= 1
                    self._beside_max = max(self._beside_max, chunk.readies[at] + self.add_s)
                    self.lapsed[seq] = chunk.readies[at]
                    self._journal.undo_by(self.lapsed.pop, seq, None)
                at += 1
            self._at = 0
            del self._chunks[0]
        return None

    def _odd_head(self, now: float) -> tuple[float, int] | None:
        while (top := self.odd.top()) is not None:
            if self._ending.keys.get(top[1], math.inf) > now:
                break
            self.lapsed[top[1]] = self._take_odd(top[1])
            self._journal.undo_by(self.lapsed.pop, top[1], None)
        return top

    def take(self, limit: int, now: float, bound: tuple[float, int] | None, out: list[int]) -> list[int]:
        """Move up to `limit` jobs before `bound` into `out`; returns those that stood beside the line."""
        odd_taken: list[int] = []
        room = len(out) + limit
        while len(out) < room:
            line, odd = self._line_head(now), self._odd_head(now)
            if odd is not None and (line is None or odd < line):
                if bound is not None and odd > bound:
                    break
                self._take_odd(odd[1])
                odd_taken.append(odd[1])
                out.append(odd[1])
                continue
            if line is None:
                break
            stop = bound if odd is None else odd if bound is None else min(bound, odd)
            if not self._take_line(room, now, stop, out):
                break
        return odd_taken

    def _take_line(self, room: int, now: float, stop: tuple[float, int] | None, out: list[int]) -> bool:
        # Within one chunk, from its first live job on: the hot loop of a lease.
        chunk, at = self._chunks[0], self._at
        seqs, readies, ends, add_s = chunk.seqs, chunk.readies, chunk.ends, self.add_s
        begun = len(out)
        size = len(seqs)
        while at < size and len(out) < room:
            seq = seqs[at]
            if seq > 0:
                if ends[at] <= now:
                    break  # steps aside in _line_head
                if stop is not None and (readies[at] + add_s, seq) > stop:
                    break
                out.append(seq)
            at += 1
        self._at = at
        self._live -= len(out) - begun
        return len(out) > begun

    def remove(self, seq: int) -> bool:
        """Take a job out, wherever it stands; False when it is not here."""
        ready_at = self.lapsed.pop(seq, None)
        if ready_at is not None:
            self._journal.undo_by(self.lapsed.__setitem__, seq, ready_at)
            return True
        if seq in self._odd_ready:
            self._take_odd(seq)
            return True
        found = self._find(seq)
        if found is None:
            return False
        self._journal.mark(self)
        self._live -= 1
        found[0].kill(found[1])
        self._journal.undo_by(found[0].revive, found[1])
        return True

    def _find(self, seq: int) -> tuple[Chunk, int] | None:
        place = bisect_left(self._chunks, seq, key=lambda chunk: abs(chunk.seqs[-1]))
        if place == len(self._chunks):
            return None
        chunk = self._chunks[place]
        at = bisect_left(chunk.seqs, seq, lo=self._at if place == 0 else 0, key=abs)
        return (chunk, at) if at < len(chunk.seqs) and chunk.seqs[at] == seq else None

    def oldest_at(self) -> float | None:
        """Return the ready time of the job that has been ready longest."""
        readies: list[float] = list(self.lapsed.values())
        odd = self.odd.top()
        if odd is not None:
            readies.append(self._odd_ready[odd[1]])
        for chunk, begin in self._spans():
            live = next((i for i in range(begin, len(chunk.seqs)) if chunk.seqs[i] > 0), None)
            if live is not None:
                readies.append(chunk.readies[live])
                break
        return min(readies, default=None)

    def ahead_of(self, key: float, seq: int) -> int:
        """Return how many jobs here come before (key, seq)."""
        mine, add_s = (key, seq), self.add_s
        if key > self._beside_max:  # true of nearly every job that was just stored
            count = len(self.lapsed) + len(self.odd)
        else:
            count = sum(1 for other, at in self.lapsed.items() if (at + add_s, other) < mine)
            count += sum(1 for other, at in self.odd.keys.items() if (at, other) < mine)
        last = (self._last[0], self._last[2])
        if last <= mine:
            is_last = last == mine and seq not in self.lapsed and seq not in self._odd_ready
            return count + self._live - is_last
        for chunk, begin in self._spans():
            seqs, readies = chunk.seqs, chunk.readies
            if (readies[-1] + add_s, abs(seqs[-1])) < mine:
                count += len(seqs) - begin
                if chunk.dead:
                    count -= sum(1 for i in range(begin, len(seqs)) if seqs[i] < 0)
                continue
            # The line is sorted by (key, sequence), those that left included.
            low, high = begin, len(seqs)
            while low < high:
                middle = (low + high) // 2
                if (readies[middle] + add_s, abs(seqs[middle])) < mine:
                    low = middle + 1
                else:
                    high = middle
            count += low - begin
            if chunk.dead:
                count -= sum(1 for i in range(begin, low) if seqs[i] < 0)
            break
        return count

    def _spans(self) -> Iterator[tuple[Chunk, int]]:
        for place, chunk in enumerate(self._chunks):
            yield chunk, self._at if place == 0 else 0

    def lowest_seq(self) -> int | None:
        """Return a sequence that no job here lies below; None when it is empty."""
        lowest = min(min(self.lapsed, default=math.inf), min(self._odd_ready, default=math.inf))
        for chunk, begin in self._spans():
            if begin < len(chunk.seqs):
                lowest = min(lowest, abs(chunk.seqs[begin]))
                break
        return None if lowest == math.inf else int(lowest)

    def seqs(self) -> list[int]:
        """Return the sequences of all jobs here."""
        line = [seq for chunk, begin in self._spans() for seq in chunk.seqs[begin:] if seq > 0]
        return [*line, *self._odd_ready, *self.lapsed]

    def newest(self, below: int, limit: int) -> list[int]:
        """Return the highest sequences here below one, highest first, `limit` at most."""
        found = [seq for seq in (*self._odd_ready, *self.lapsed) if seq < below]
        room = limit + len(found)
        for chunk, begin in reversed(list(self._spans())):
            until = bisect_left(chunk.seqs, below, lo=begin, key=abs)
            begin = max(begin, until - (room - len(found)) - chunk.dead)
            found += [seq for seq in chunk.seqs[begin:until] if seq > 0]
            if len(found) >= room:
                break
        return nlargest(limit, found)

    def pull_due(self, now: float, into: LazyHeap) -> int:
        """Push the ends that have passed of the chunk with the earliest; return how many."""
        pulled, rest = 0, math.inf
        earliest = min(self._spans(), key=lambda span: span[0].ends_min, default=None)
        if earliest is not None and earliest[0].ends_min <= now:
            chunk, begin = earliest
            for at in range(begin, len(chunk.seqs)):
                end = chunk.ends[at]
                if chunk.seqs[at] < 0:
                    continue
                if end <= now:
                    into.push(end, chunk.seqs[at])
                    pulled += 1
                elif end < rest:
                    rest = end
            # A rolled back transaction puts jobs back that this look did not see.
            self._journal.undo_by(setattr, chunk, "ends_min", chunk.ends_min)
            chunk.ends_min = rest
        self.soonest = min((chunk.ends_min for chunk in self._chunks), default=math.inf)
        return pulled

    def saved(self) -> Callable[[], None]:
        """Return the way back to the present state of the line."""
        chunks, at, last, live = list(self._chunks), self._at, self._last, self._live
        tail = chunks[-1] if chunks else None
        size = len(tail.seqs) if tail is not None else 0
        ends_min = tail.ends_min if tail is not None else math.inf

        def restore() -> None:
            self._chunks, self._at, self._last, self._live = chunks, at, last, live
            if tail is not None:
                del tail.seqs[size:], tail.readies[size:], tail.ends[size:]
                tail.ends_min = ends_min

        return restore
