"""Objects that stand for those of C's while a call is recorded: the program never gets hold of one."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest

import kintsugi

SEEN: list[Any] = []


def keep(value: Any) -> Any:
    SEEN.append(value)
    return value


def difference(a: int, b: int) -> int:
    return a - b


def compared_itself(x: list[int]) -> Any:
    return functools.cmp_to_key(difference)(x[0])


def compared_in_a_comprehension(x: list[int]) -> Any:
    key = functools.cmp_to_key(difference)
    return [key(v) for v in x]


def compared_by_map(x: list[int]) -> Any:
    return [*map(functools.cmp_to_key(difference), x)]


def compared_by_a_key(x: list[int]) -> Any:
    return sorted(x, key=lambda v: keep(functools.cmp_to_key(difference)(v)))


def compared_by_the_largest(x: list[int]) -> Any:
    return max(x, key=functools.cmp_to_key(difference)), min(x, key=functools.cmp_to_key(difference))


def groups_in_a_list(x: list[int]) -> Any:
    return [*itertools.groupby(x)]


def groups_one_by_one(x: list[int]) -> Any:
    return next(itertools.groupby(x))


def groups_kept(x: list[int]) -> Any:
    return [keep(group) for _, group in itertools.groupby(x)]


def groups_in_a_dict(x: list[int]) -> Any:
    return {key: group for key, group in itertools.groupby(x)}


def groups_left_over(x: list[int]) -> Any:
    group = None
    for _, group in itertools.groupby(x):
        pass
    return group


def groups_in_generators(x: list[int]) -> Any:
    return [(v for v in group) for _, group in itertools.groupby(x)]


def groups_of_another_variable(x: list[int]) -> Any:
    found = []
    for _, group in itertools.groupby(x):
        other = group
        found.append(other)
    return found


def groups_in_a_cell(x: list[int]) -> Any:
    found = []
    for _, group in itertools.groupby(x):
        found.append(lambda group=group: group)
    return [f() for f in found]


def groups_counted(x: list[int]) -> Any:
    return [(key, len(list(group))) for key, group in itertools.groupby(x)]


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: types_of(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [types_of(part) for part in value]
    return type(value), value if isinstance(value, int) else None


@pytest.mark.parametrize(
    "program",
    [
        compared_itself,
        compared_in_a_comprehension,
        compared_by_map,
        compared_by_a_key,
        compared_by_the_largest,
        groups_in_a_list,
        groups_one_by_one,
        groups_kept,
        groups_in_a_dict,
        groups_left_over,
        groups_in_generators,
        groups_of_another_variable,
        groups_in_a_cell,
        groups_counted,
    ],
)
def test_not_seen(program: Callable[[list[int]], Any]) -> None:
    compiled = kintsugi.compile(program, backend="eager")
    for k in range(4):
        SEEN.clear()
        want = types_of(program([3, 3, 1, k])), types_of(SEEN)
        SEEN.clear()
        assert (types_of(compiled([3, 3, 1, k])), types_of(SEEN)) == want
