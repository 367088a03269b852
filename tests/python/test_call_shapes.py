"""Calls of one callable that bring different arguments, in children whose freed memory is overwritten."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap

import pytest
import torch

import kintsugi

# What a C allocator hands out and takes back is filled with other bytes, so whatever is read beyond the arguments of a
# call is no object.
HARSH = {"PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "165"}

PRELUDE = """
    import torch
    import kintsugi

    def deep(n):  # other values are left on the stack
        return n and deep(n - 1)

    def check(f, calls, rounds=6):
        g = kintsugi.compile(f, backend=BACKEND)
        for i in range(rounds):
            for k, (args, kwargs) in enumerate(calls):
                deep(i + k)
                want, got = f(*args, **kwargs), g(*args, **kwargs)
                assert type(got) is type(want) and str(got) == str(want), (i, k, got, want)
        return g

    x = torch.arange(3.0)
"""

PROGRAMS = {
    "keywords that come and go": """
        def f(x, **kw):
            return x * 2, sorted(kw.items())
        check(f, [((x,), {"z": 1, "y": 2}), ((x,), {}), ((x,), {"y": 2}), ((x,), {"a": 1, "b": 2, "c": 3})])
    """,
    "numbers by keyword vary": """
        def f(x, **kw):
            return x * sum(kw.values())
        check(f, [((x,), {"a": n, "b": n + 1}) for n in range(4)] + [((x,), {}), ((x,), {"a": 7})])
    """,
    "sizes by keyword vary": """
        def f(x, other=None, last=None):
            return x.sum() if other is None else x.sum() + other.sum() + (0 if last is None else last.sum())
        calls = [((x,), {"other": torch.ones(n), "last": torch.ones(n, 2)}) for n in range(2, 6)]
        check(f, [*calls, ((x,), {}), ((x,), {"last": x}), ((x,), {"other": torch.ones(9)})])
    """,
    "keywords in another order": """
        def f(x, a=0, b=0, c=0):
            return x * a + b - c
        import itertools
        names = [dict(p) for p in itertools.permutations([("a", 1), ("b", 2), ("c", 3)])]
        check(f, [((x,), kw) for kw in names] + [((x,), {}), ((x, 5), {"c": 2, "b": 1}), ((x, 5, 6, 7), {})])
    """,
    "fewer and more positional arguments": """
        def f(*args):
            return sum(args, x)
        check(f, [(tuple(range(n)), {}) for n in (5, 0, 3, 40, 1, 70, 2)])
    """,
    "defaults": """
        def f(x, scale=2, *rest, shift=3, **kw):
            return x * scale + shift, rest, kw
        check(f, [((x,), {}), ((x, 4), {}), ((x, 4, 5), {"shift": 1}), ((x,), {"scale": 7, "other": 1})])
    """,
    "an optional keyword of a module": """
        class M(torch.nn.Module):
            def forward(self, x, mask=None, scale=1.0):
                return x * scale if mask is None else x * mask
        m = M()
        check(m, [((x,), {"mask": x}), ((x,), {}), ((x,), {"scale": 2.0, "mask": x}), ((x,), {"scale": 3.0})])
    """,
    "a bound method": """
        class C:
            def f(self, x, *, by=None):
                return x if by is None else x * by
        check(C().f, [((x,), {"by": x}), ((x,), {}), ((x,), {"by": 2}), ((x,), {"by": 3})])
    """,
    "calls that raise": """
        def f(x, a, *, b):
            return x * a * b
        g = kintsugi.compile(f, backend=BACKEND)
        for i in range(12):
            deep(i)
            kwargs = [{"a": 1, "b": 2}, {"b": 3}, {}, {"a": 1, "b": 2, "c": 3}][i % 4]
            try:
                got = g(x, **kwargs)
                assert torch.equal(got, f(x, **kwargs))
            except TypeError as error:
                try:
                    f(x, **kwargs)
                except TypeError as other:
                    assert str(error) == str(other)
    """,
}


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_arguments_of_this_call(backend: str) -> None:
    """One child for all programs: it says which one it is at."""
    steps = [f"print({name!r}, flush=True)\n{textwrap.dedent(text)}" for name, text in PROGRAMS.items()]
    program = "\n".join([textwrap.dedent(PRELUDE), *steps]).replace("BACKEND", repr(backend))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        env=os.environ | HARSH,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.splitlines() == list(PROGRAMS)


def test_another_shape_is_the_reason_for_a_recompile() -> None:
    """No guard is blamed for a call that brings other arguments."""

    def f(x: torch.Tensor, **kw: int) -> torch.Tensor:
        return x * len(kw)

    g = kintsugi.compile(f)
    x = torch.ones(2)
    for kwargs in ({}, {"a": 1}, {"b": 1}):
        g(x, **kwargs)
    reasons = [(r["guard"], r["expected"], r["seen"]) for r in g.recompiles()]
    none, a, b = (
        f"1 positional arguments{keywords}" for keywords in ("", " and keywords a", " and keywords b")
    )
    assert reasons == [("the call", none, a), ("the call", none, b), ("the call", a, b)]


def test_every_shape_has_its_own_trace() -> None:
    def f(*args: torch.Tensor, **kw: torch.Tensor) -> torch.Tensor:
        return torch.stack([*args, *kw.values()]).sum()

    g = kintsugi.compile(f)
    x = torch.ones(2)
    for count, names in itertools.product(range(1, 3), [(), ("a",), ("a", "b"), ("b", "a")]):
        for _ in range(2):
            assert g(*[x] * count, **dict.fromkeys(names, x)) == 2 * (count + len(names))
