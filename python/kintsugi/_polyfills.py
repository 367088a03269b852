"""Builtins that call back, written in Python: the recorder runs these in their place, so that it sees the calls.

Each does what the C function of CPython does, in the same order, with the same results and exceptions. Which call is
replaced, and when, is decided in csrc/capture/calls/polyfills.cc. Frames of this file leave no mark in tracebacks.
"""

from __future__ import annotations

import contextlib
import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any

import torch

from kintsugi._polyfill_autograd import apply_function  # noqa: F401
from kintsugi._polyfill_checkpoint import checkpoint_recomputed, checkpoint_reentrant  # noqa: F401
from kintsugi._polyfill_heaps import (  # noqa: F401
    _heapify_max,
    _heappop_max,
    _heapreplace_max,
    bisect_left,
    bisect_right,
    heapify,
    heappop,
    heappush,
    heappushpop,
    heapreplace,
)
from kintsugi._polyfill_higher_order import (  # noqa: F401
    checkpoint,
    compiled_flex_attention,
    cond,
    empty_block_mask,
    flex_attention,
    index_by_tensors,
    map_,
    map_rows,
    no_surroundings,
    scan,
    while_loop,
)
from kintsugi._polyfill_iterators import (  # noqa: F401
    accumulate,
    chain,
    chain_from_iterable,
    combinations,
    combinations_with_replacement,
    compared,
    compress,
    count,
    cycle,
    delegate,
    dropwhile,
    ended,
    enumerate_,
    filter_,
    filterfalse,
    groupby,
    islice,
    items_of_pair,
    map_many,
    map_one,
    pairwise,
    permutations,
    product,
    repeat,
    reversed_,
    starmap,
    takewhile,
    turned_tuple,
    zip_,
    zip_longest,
)
from kintsugi._polyfill_modes import attribute_of, read_attribute, seen_by_mode, under_mode  # noqa: F401
from kintsugi._polyfill_operators import (  # noqa: F401
    attribute_or,
    compare_tuples,
    contraction_path,
    einsum_in_order,
    has_attribute,
    operator_call,
    operator_delitem,
    operator_iadd,
    operator_iand,
    operator_ifloordiv,
    operator_ilshift,
    operator_imatmul,
    operator_imod,
    operator_imul,
    operator_ior,
    operator_ipow,
    operator_irshift,
    operator_isub,
    operator_itruediv,
    operator_ixor,
    operator_setitem,
    order_eq,
    order_ge,
    order_gt,
    order_le,
    order_lt,
    order_ne,
    test_eq,
    test_ge,
    test_gt,
    test_le,
    test_lt,
    test_ne,
)
from kintsugi._polyfill_reductions import all_, any_, reduce, sum_  # noqa: F401

_MISSING: Any = object()
_ONE_RUN = 64  # CPython sorts shorter lists by insertion
_COMPARABLE = frozenset((int, float, bool, torch.Tensor))


def order(keys: Sequence[Any], reverse: bool) -> list[int]:
    """The positions of `keys` in sorted order; equal ones keep theirs. Known keys never get here: they are folded.

    Of many keys, insertion finds the same order as CPython's sort where any two of them compare consistently.
    """
    if len(keys) < 2:
        return list(range(len(keys)))
    comparable = not [key for key in keys if type(key) not in _COMPARABLE]
    if len(keys) < _ONE_RUN and (comparable or _ordered_by_python(keys)):
        return _order_of_few(keys, reverse)
    if not comparable or [key for key in keys if key != key]:
        return sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)
    placed: list[int] = []
    for at in range(len(keys)):
        low, high = 0, len(placed)
        while low < high:
            middle = (low + high) // 2
            other = keys[placed[middle]]
            if (other < keys[at]) if reverse else (keys[at] < other):
                high = middle
            else:
                low = middle + 1
        placed.insert(low, at)
    return placed


def _ordered_by_python(keys: Sequence[Any]) -> bool:
    kind = type(keys[0])
    return type(kind.__lt__) is FunctionType and not [key for key in keys if type(key) is not kind]


def _first_strict_run(keys: Sequence[Any], placed: list[int]) -> int:
    """How many are in order at the beginning; those that are in the opposite order are turned around first."""
    run = 2
    if keys[placed[1]] < keys[placed[0]]:
        while run < len(placed) and keys[placed[run]] < keys[placed[run - 1]]:
            run += 1
        placed[:run] = placed[:run][::-1]
    else:
        while run < len(placed) and not keys[placed[run]] < keys[placed[run - 1]]:
            run += 1
    return run


def _first_run(keys: Sequence[Any], placed: list[int]) -> int:
    """The same where the opposite order may have equal ones in it, which keep theirs: CPython 3.13 and later."""
    run = 1
    while run < len(placed) and not keys[placed[run]] < keys[placed[run - 1]]:
        run += 1
    if run == len(placed):
        return run
    if run > 1:
        if keys[placed[0]] < keys[placed[run - 1]]:
            return run
        placed[:run] = placed[:run][::-1]
    run += 1
    equals = 0  # that lie before `run`, the first one not counted
    while run < len(placed):
        if keys[placed[run]] < keys[placed[run - 1]]:
            placed[run - equals - 1 : run] = placed[run - equals - 1 : run][::-1]
            equals = 0
        elif keys[placed[run - 1]] < keys[placed[run]]:
            break
        else:
            equals += 1
        run += 1
    placed[run - equals - 1 : run] = placed[run - equals - 1 : run][::-1]
    placed[:run] = placed[:run][::-1]
    while run < len(placed) and not keys[placed[run]] < keys[placed[run - 1]]:
        run += 1
    return run


def _looks_for_equals() -> bool:
    """Does this CPython's sort, having met equals and then less, ask whether all were equal?"""
    asked = []

    class Key:
        def __init__(self, number: int) -> None:
            self.number = number

        def __lt__(self, other: Key) -> bool:
            asked.append((self.number, other.number))
            return self.number < other.number

    sorted([Key(1), Key(1), Key(0)])
    return asked[2] == (1, 1)


_LOOKS_FOR_EQUALS = _looks_for_equals()


def _order_of_few(keys: Sequence[Any], reverse: bool) -> list[int]:
    """The same comparisons as CPython's sort of a list that is one run: these may be seen."""
    placed = list(range(len(keys)))
    if reverse:
        placed.reverse()
    run = _first_run(keys, placed) if _LOOKS_FOR_EQUALS else _first_strict_run(keys, placed)
    for at in range(run, len(placed)):
        low, high = 0, at
        chosen = placed[at]
        while low < high:
            middle = low + ((high - low) >> 1)
            if keys[chosen] < keys[placed[middle]]:
                high = middle
            else:
                low = middle + 1
        placed.insert(low, placed.pop(at))
    if reverse:
        placed.reverse()
    return placed


def as_c_int(value: Any) -> bool:
    """The truth of what C code reads as an int."""
    if type(value) is bool:
        return value is True
    number = operator.index(value)
    if number < -(1 << 31) or number >= 1 << 31:
        raise OverflowError("Python int too large to convert to C int")
    return number != 0


def _keys(values: list[Any], key: Callable[[Any], Any]) -> list[Any]:
    keys = []
    for value in values:
        keys.append(key(value))
    return keys


def sorted_(
    iterable: Iterable[Any], /, *, key: Callable[[Any], Any] | None = None, reverse: bool = False
) -> list[Any]:
    values = list(iterable)
    backwards = as_c_int(reverse)
    keys = values if key is None else _keys(values, key)
    return [values[at] for at in order(keys, backwards)]


def list_sort(self: list[Any], /, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
    """While C code sorts a list, whoever is called back sees an empty one, and what is put there is lost."""
    backwards = as_c_int(reverse)
    values = self[:]
    if key is None and not (values and _ordered_by_python(values)):
        self[:] = [values[at] for at in order(values, backwards)]
        return
    self.clear()
    try:
        keys = values if key is None else _keys(values, key)
        placed = [values[at] for at in order(keys, backwards)]
    except BaseException:
        self[:] = values
        raise
    changed = len(self) > 0
    self[:] = placed
    if changed:
        raise ValueError("list modified during sort")


def _what_it_says(function: Callable[[Any], Any]) -> str:
    try:
        function(())
    except ValueError as error:
        return str(error)
    raise AssertionError(function)


_EMPTY = {"max": _what_it_says(max), "min": _what_it_says(min)}  # versions word it in other ways


def max_by(first: Any, /, *rest: Any, key: Callable[[Any], Any], default: Any = _MISSING) -> Any:
    best = _MISSING
    best_key = None
    for value in (first, *rest) if rest else first:
        value_key = key(value)
        if best is _MISSING or value_key > best_key:
            best, best_key = value, value_key
    if best is not _MISSING:
        return best
    if default is _MISSING:
        raise ValueError(_EMPTY["max"])
    return default


def min_by(first: Any, /, *rest: Any, key: Callable[[Any], Any], default: Any = _MISSING) -> Any:
    best = _MISSING
    best_key = None
    for value in (first, *rest) if rest else first:
        value_key = key(value)
        if best is _MISSING or value_key < best_key:
            best, best_key = value, value_key
    if best is not _MISSING:
        return best
    if default is _MISSING:
        raise ValueError(_EMPTY["min"])
    return default


def _itself(value: Any) -> Any:
    return value


def max_of(iterable: Iterable[Any], /, *, default: Any = _MISSING) -> Any:
    return max_by(iterable, key=_itself, default=default)


def min_of(iterable: Iterable[Any], /, *, default: Any = _MISSING) -> Any:
    return min_by(iterable, key=_itself, default=default)


def list_(iterable: Iterable[Any], /) -> list[Any]:
    made = []
    for value in iterable:
        made.append(value)
    return made


def list_of_length(iterable: Any, /) -> list[Any]:
    """list() of something with a length in Python, which C code asks for after the iterator."""
    iterator = iter(iterable)
    try:
        len(iterable)
    except TypeError:
        pass
    return list_(iterator)


def list_of_hint(iterable: Any, /) -> list[Any]:
    """The same of something with a `__length_hint__` in Python."""
    iterator = iter(iterable)
    operator.length_hint(iterable)
    return list_(iterator)


def first_items(iterable: Iterable[Any], limit: int, /) -> list[Any]:
    """What is unpacked into so many variables. Of an iterator the error does not say how many items it has."""
    made: list[Any] = []
    for value in iterable:
        if len(made) == limit:
            raise ValueError(f"too many values to unpack (expected {limit})")
        made.append(value)
    return made


def tuple_(iterable: Iterable[Any], /) -> tuple[Any, ...]:
    return tuple(list_(iterable))


def set_(iterable: Iterable[Any], /) -> set[Any]:
    made = set()
    for value in iterable:
        made.add(value)
    return made


def join(self: str, iterable: Iterable[str], /) -> str:
    return self.join(list_(iterable))


def extend(self: list[Any], iterable: Iterable[Any], /) -> None:
    for value in iterable:
        self.append(value)


def extend_by_tensor(self: list[Any], iterable: torch.Tensor, /) -> None:
    self.extend(list_of_length(iterable))


def iterate(iterator: Iterator[Any], /) -> Iterator[Any]:
    """An iterator that the trace knows nothing of, a step an item."""
    while True:
        item = next(iterator, _MISSING)
        if item is _MISSING:
            return
        yield item


def iterate_over(iterable: Iterable[Any], /) -> Iterator[Any]:
    yield from iterate(iter(iterable))


def iterate_until(function: Callable[[], Any], sentinel: Any, /) -> Iterator[Any]:
    while True:
        try:
            value = function()
        except StopIteration:
            return
        if sentinel is value or sentinel == value:
            return
        yield value


def by_index(sequence: Any, /) -> Iterator[Any]:
    at = 0
    while True:
        try:
            item = sequence[at]
        except (IndexError, StopIteration):
            return
        yield item
        at += 1


def dict_(pairs: Iterable[Any], /) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    update_dict(made, pairs)
    return made


def make_dict(*items: Any) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for at in range(0, len(items), 2):
        made[items[at]] = items[at + 1]
    return made


# {value!s:spec} and its like, which one instruction does.
def format_str(value: Any, spec: str) -> str:
    return format(str(value), spec)


def format_repr(value: Any, spec: str) -> str:
    return format(repr(value), spec)


def format_ascii(value: Any, spec: str) -> str:
    return format(ascii(value), spec)


def make_set(*items: Any) -> set[Any]:
    return set(items)


def count_elements(mapping: dict[Any, int], iterable: Iterable[Any], /) -> None:
    for item in iterable:
        mapping[item] = mapping.get(item, 0) + 1


def default_item(self: Any, key: Any, /) -> Any:
    """defaultdict.__missing__"""
    if self.default_factory is None:
        raise KeyError(key)
    value = self.default_factory()
    self[key] = value
    return value


def tensor_item(self: Any, key: torch.Tensor, /) -> Any:
    """dict[tensor]"""
    if key in self:
        return dict.get(self, key)
    raise KeyError(key)


def tensor_default_item(self: Any, key: torch.Tensor, /) -> Any:
    """defaultdict[tensor]"""
    if key in self:
        return dict.get(self, key)
    return default_item(self, key)


def select_at(self: torch.Tensor, index: int, /) -> torch.Tensor:
    """tensor[index], where the index varies: torch's own code for it would take its value."""
    size = self.size(0)
    if index >= size or index < -size:
        return self[index]  # raises IndexError
    return self.select(0, index)


def update_dict(self: dict[Any, Any], pairs: Iterable[Any], /) -> None:
    at = 0
    for pair in pairs:
        items = pair if type(pair) is tuple or type(pair) is list else items_of_pair(pair, at)
        if len(items) != 2:
            raise ValueError(
                f"dictionary update sequence element #{at} has length {len(items)}; 2 is required"
            )
        self[items[0]] = items[1]
        at += 1


def ordered_dict(pairs: Iterable[Any], /) -> OrderedDict[Any, Any]:
    made: OrderedDict[Any, Any] = OrderedDict()
    for pair in pairs:
        items = [item for _, item in zip(range(3), iter(pair), strict=False)]  # C code asks for three
        if len(items) != 2:
            few = f"need more than {len(items)} value{'s' if not items else ''} to unpack"
            raise ValueError(few if len(items) < 2 else "too many values to unpack (expected 2)")
        made[items[0]] = items[1]
    return made


def move_to_end(self: OrderedDict[Any, Any], key: Any, last: bool = True) -> None:
    keys = list(self)
    if keys and keys[-1 if last else 0] is key:
        return  # nothing moves, so iterators go on
    value = self.pop(key)
    if last:
        self[key] = value
        return
    others = [(other, self.pop(other)) for other in list(self)]
    self[key] = value
    for other, item in others:
        self[other] = item


def pop_item(self: OrderedDict[Any, Any], last: bool = True) -> tuple[Any, Any]:
    if not self:
        raise KeyError("dictionary is empty")
    key = list(self)[-1 if last else 0]
    return key, self.pop(key)


def clear_dict(self: dict[Any, Any], /) -> None:
    for key in list(self):
        del self[key]


def deque_(iterable: Iterable[Any], maxlen: int | None = None) -> deque[Any]:
    return deque(list_(iterable), maxlen)


def tuple_new(cls: type, iterable: Iterable[Any], /) -> Any:
    return tuple.__new__(cls, list_(iterable))


def get_items(*args: Any) -> Any:
    container = args[-1]
    if len(args) == 2:
        return container[args[0]]
    return tuple([container[key] for key in args[:-1]])


def _attribute(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = getattr(value, name)
    return value


def get_attributes(*args: Any) -> Any:
    if len(args) == 2:
        return _attribute(args[1], args[0])
    return tuple([_attribute(args[-1], path) for path in args[:-1]])


def call_method(name: str, /, *args: Any, **keywords: Any) -> Any:
    return getattr(args[-1], name)(*args[:-1], **keywords)


# map and filter objects that were kept: they have no state but their function and their iterators


def next_of_map(kept: Any, default: Any = _MISSING, /) -> Any:
    parts = kept.__reduce__()[1]
    try:
        return parts[0](*[next(iterator) for iterator in parts[1:]])
    except StopIteration:
        if default is _MISSING:
            raise
        return default


def items_of_map(kept: Any, /) -> Iterator[Any]:
    parts = kept.__reduce__()[1]
    while True:
        try:
            value = parts[0](*[next(iterator) for iterator in parts[1:]])
        except StopIteration:
            return
        yield value


def next_of_filter(kept: Any, default: Any = _MISSING, /) -> Any:
    function, iterator = kept.__reduce__()[1]
    try:
        while True:
            value = next(iterator)
            if value if function is None or function is bool else function(value):
                return value
    except StopIteration:
        if default is _MISSING:
            raise
        return default


def items_of_filter(kept: Any, /) -> Iterator[Any]:
    function, iterator = kept.__reduce__()[1]
    while True:
        try:
            value = next(iterator)
            good = value if function is None or function is bool else function(value)
        except StopIteration:
            return
        if good:
            yield value


# operators whose special methods are Python code


def operate(a: Any, b: Any, own: Any, left: Any, right: Any, right_first: bool, problem: str) -> Any:
    if own is not None:
        value = own(a, b)
        if value is not NotImplemented:
            return value
    if right_first:
        value = right(b, a)
        if value is not NotImplemented:
            return value
    if left is not None:
        value = left(a, b)
        if value is not NotImplemented:
            return value
    if right is not None and not right_first:
        value = right(b, a)
        if value is not NotImplemented:
            return value
    raise TypeError(problem)


def compare(
    a: Any,
    b: Any,
    left: Any,
    right: Any,
    right_first: bool,
    negate_left: bool,
    negate_right: bool,
    identity: bool | None,
    problem: str,
) -> Any:
    """`identity`: what to say of one object where no method says anything; None: it is an error."""
    if right_first:
        value = right(b, a)
        if value is not NotImplemented:
            return not value if negate_right else value
    if left is not None:
        value = left(a, b)
        if value is not NotImplemented:
            return not value if negate_left else value
    if right is not None and not right_first:
        value = right(b, a)
        if value is not NotImplemented:
            return not value if negate_right else value
    if identity is None:
        raise TypeError(problem)
    return (a is b) is identity


def says_true(value: Any, /) -> bool:
    answer = type(value).__bool__(value)
    if answer is True:
        return True
    if answer is False:
        return False
    raise TypeError(f"__bool__ should return bool, returned {type(answer).__name__}")


def length_of(value: Any, /) -> int:
    length = type(value).__len__(value)
    if type(length) is not int:
        length = int(operator.index(length))
    if length < 0:
        raise ValueError("__len__() should return >= 0")
    return length


def has_length(value: Any, /) -> bool:
    return True if length_of(value) else False


def says_it_has(item: Any, container: Any, /) -> bool:
    return True if type(container).__contains__(container, item) else False


def says_it_lacks(item: Any, container: Any, /) -> bool:
    return False if type(container).__contains__(container, item) else True


def has_item(item: Any, container: Any, /) -> bool:
    for value in container:
        if value is item or value == item:
            return True
    return False


def lacks_item(item: Any, container: Any, /) -> bool:
    return not has_item(item, container)


def resume_after_raise(outcome: Any) -> Any:
    """Runs in place of a call that raised while it was recorded, if it now does something else.

    `outcome`: (value,), or the exception that the call raised.
    """
    if type(outcome) is tuple:
        return outcome[0]
    raise outcome


def run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Autograd's engine, below a transform: no thread of another device takes part."""
    return torch.autograd.Variable._execution_engine.run_backward(t_outputs, *args, **kwargs)


def no_context() -> Any:
    """A manager of a context in which nothing is different."""
    return contextlib.nullcontext()


def lacks(container: Any, item: Any) -> bool:
    return item not in container


def tensor(data: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """torch.tensor(number). Through float64, since operators refuse what does not fit and torch.tensor rounds it."""
    kind = type(data)
    if dtype is None:
        dtype = torch.get_default_dtype() if kind is float else torch.int64 if kind is int else torch.bool
    if dtype is torch.float32 or dtype is torch.float64:
        wide = torch.scalar_tensor(float(data), dtype=torch.float64, device=device)
        return wide if dtype is torch.float64 else wide.to(torch.float32)
    if (kind is int and dtype is torch.int64) or (kind is bool and dtype is torch.bool):
        made = None
        try:
            made = torch.scalar_tensor(data, dtype=dtype, device=device)
        except (OverflowError, RuntimeError):
            if -(1 << 63) <= data < 1 << 63:
                raise
        if made is None:
            raise ValueError("Overflow when unpacking long long")
        return made
    return torch.tensor(data, dtype=dtype, device=device)
