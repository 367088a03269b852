"""Truth, length and members that Python code tells from the values of tensors: exits lead back to the question."""

from __future__ import annotations

import collections

from harness import Case, Suite, check, check_captured, signs

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


class Mask:
    def __init__(self, t):
        self.t = t

    def __bool__(self):
        return bool(self.t.any())

    def __contains__(self, value):
        return bool((self.t == value).any())


class Sized:
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


class Odd:
    def __init__(self, answer):
        self.answer = answer

    def __bool__(self):
        return self.answer


@case(inputs=signs)
def truth_in_branches(x):
    mask = Mask(x > 0.5)
    y = x + 1 if mask else x - 1
    while not Mask(y > 3):
        y = y + 1
    return y, bool(mask), not mask, all([mask, 1]), any([mask, 0]), len(list(filter(None, [mask, mask])))


@case(inputs=signs)
def members_by_value(x):
    found = 1.0 in Mask(x.sign())
    return x, found, -1.0 not in Mask(x.sign())


@case(inputs=signs)
def lengths_by_value(x):
    some = Sized(int((x > 0).sum()))
    if some:
        x = x * 2
    return x, len(some), bool(some), not some, len(Sized(True))


@case(inputs=signs)
def refused(x):
    said = []
    for ask in (bool, len, lambda v: 1 if v else 2, lambda v: not v):
        for odd in (Odd(x.sum().item()), Sized(-1), Sized("a")):
            try:
                said.append(ask(odd))
            except (TypeError, ValueError) as error:
                said.append(str(error))
    return x, said


@factory(breaks=None)
def make_a_deque_that_backward_may_see():
    state = {}

    def f(x):
        state["last"] = collections.deque(maxlen=3)
        y = (x * 2).requires_grad_()
        y.sum().backward()
        state["last"].append(y.grad.sum().item())
        state["last"].append(1)
        return list(state["last"]), len(state["last"])

    return f, state


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)
