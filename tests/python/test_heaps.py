"""heapq and bisect: comparisons in Python see the list as C leaves it, and may change it."""

from __future__ import annotations

import bisect
import heapq
import random
from collections.abc import Callable
from typing import Any

import harness
import pytest
import torch

HEAP_FUNCTIONS: dict[str, Callable[[list[Any], Any], Any]] = {
    "heappush": lambda heap, item: heapq.heappush(heap, item),
    "heappop": lambda heap, item: heapq.heappop(heap),
    "heapreplace": lambda heap, item: heapq.heapreplace(heap, item),
    "heappushpop": lambda heap, item: heapq.heappushpop(heap, item),
    "heapify": lambda heap, item: heapq.heapify(heap),
    "_heapify_max": lambda heap, item: heapq._heapify_max(heap),  # type: ignore[attr-defined]
    "_heappop_max": lambda heap, item: heapq._heappop_max(heap),  # type: ignore[attr-defined]
    "_heapreplace_max": lambda heap, item: heapq._heapreplace_max(heap, item),  # type: ignore[attr-defined]
    "insort": lambda heap, item: bisect.insort(heap, item),
    "insort_left": lambda heap, item: bisect.insort_left(heap, item),
    "bisect_left": lambda heap, item: bisect.bisect_left(heap, item),
}


class Item:
    """Writes down what the list looks like whenever two are compared, and changes it at one comparison."""

    def __init__(self, rank: int, heap: list[Item], seen: list[Any], change_at: int, change: str) -> None:
        self.rank, self.heap, self.seen = rank, heap, seen
        self.change_at, self.change = change_at, change

    def __lt__(self, other: Item) -> bool:
        self.seen.append((self.rank, other.rank, [item.rank for item in self.heap]))
        if len(self.seen) == self.change_at:
            if self.change == "pop":
                self.heap.pop()
            elif self.change == "append":
                self.heap.append(self)
            elif self.change == "clear":
                self.heap.clear()
            elif self.change == "swap":
                self.heap[0], self.heap[-1] = self.heap[-1], self.heap[0]
        return self.rank < other.rank


@pytest.mark.parametrize("name", HEAP_FUNCTIONS)
@pytest.mark.parametrize("change", ["nothing", "pop", "append", "clear", "swap"])
def test_comparisons_see_the_list(name: str, change: str) -> None:
    call = HEAP_FUNCTIONS[name]

    def program(x: torch.Tensor, length: int, change_at: int) -> Any:
        heap: list[Any] = []
        seen: list[Any] = []
        numbers = random.Random(length * 7 + change_at)
        heap.extend(Item(numbers.randrange(9), heap, seen, change_at, change) for _ in range(length))
        item = Item(4, heap, seen, change_at, change)
        try:
            found = call(heap, item)
        except (IndexError, RuntimeError) as error:
            found = (type(error), str(error))
        rank = found.rank if isinstance(found, Item) else found
        return x + len(seen), rank, seen, [item.rank for item in heap]

    compiled = harness.compile_for_test(program)
    for length in (0, 1, 2, 3, 6, 9):
        for change_at in (1, 2, 3) if change != "nothing" else (0,):
            x = torch.arange(3.0)
            for _ in range(2):
                wanted, found = program(x, length, change_at), compiled(x, length, change_at)
                assert found[1:] == wanted[1:]
                assert torch.equal(found[0], wanted[0])


@pytest.mark.parametrize("name", HEAP_FUNCTIONS)
def test_tensors(name: str) -> None:
    call = HEAP_FUNCTIONS[name]

    def program(items: torch.Tensor, item: torch.Tensor) -> Any:
        heap = [items[i] for i in range(len(items))]
        found = call(heap, item)
        return found, heap

    compiled = harness.compile_for_test(program)
    for seed in range(6):
        torch.manual_seed(seed % 4)
        items, item = torch.randn(5), torch.randn(())
        (wanted, in_eager), (found, heap) = program(items, item), compiled(items, item)
        assert torch.equal(torch.stack(heap), torch.stack(in_eager))
        assert type(found) is type(wanted)
        assert found is None or torch.equal(torch.as_tensor(found), torch.as_tensor(wanted))
