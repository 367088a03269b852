"""Programs as users write them: state and the standard library. See test_user_programs.py."""

from __future__ import annotations

import array
import asyncio
import contextlib
import contextvars
import copy
import dataclasses
import decimal
import fractions
import functools
import inspect
import itertools
import os
import pickle
import queue
import statistics
import string
import struct
import tempfile
import textwrap
import threading
import traceback
import types
import warnings
import weakref

import numpy as np
import torch
import torch.nn as nn
from user_programs import prog


@prog
def cached_prop():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.l = nn.Linear(3, 3)
            s.n = 0

        @functools.cached_property
        def mask(s):
            s.n += 1
            return torch.tril(torch.ones(3, 3))

        def forward(s, x):
            return s.l(x) @ s.mask, s.n

    m = M()

    def f(x, clear):
        if clear:
            m.__dict__.pop("mask", None)
        return m(x)

    return f, lambda k: (torch.randn(2, 3), k % 4 == 3)


@prog
def slots_and_ops():
    class V:
        __slots__ = ("t", "tag")

        def __init__(s, t, tag=""):
            s.t = t
            s.tag = tag

        def __add__(s, o):
            return V(s.t + (o.t if isinstance(o, V) else o), s.tag + "+")

        __radd__ = __add__

        def __mul__(s, o):
            return NotImplemented if isinstance(o, str) else V(s.t * o, s.tag + "*")

        def __matmul__(s, o):
            return s.t @ o.t

        def __bool__(s):
            return bool((s.t > 0).all())

        def __len__(s):
            return s.t.shape[0]

        def __getitem__(s, i):
            return s.t[i]

        def __iter__(s):
            return iter(s.t)

        def __contains__(s, v):
            return v in s.tag

        def __call__(s, f):
            return V(f(s.t), s.tag + "()")

        def __eq__(s, o):
            return isinstance(o, V) and torch.equal(s.t, o.t)

        def __repr__(s):
            return f"V({s.tag})"

    def f(x):
        a = V(x)
        b = 1 + a + V(x) * 2
        c = sum([a, b], V(torch.zeros(3)))
        try:
            r = a * "no"
        except TypeError as e:
            r = str(e)
        return (
            (a @ b),
            bool(c),
            len(c),
            [v.item() for v in c],
            "+" in c,
            repr(c),
            c(torch.relu).t,
            a == V(x.clone()),
            r,
            c[0],
        )

    return f, lambda k: (torch.randn(3),)


@prog
def exceptions_finally():
    log = []

    class E(Exception):
        def __init__(s, m, code):
            super().__init__(m)
            s.code = code

    def inner(x, d):
        try:
            if d == 1:
                raise E("one", x.sum().item())
            if d == 2:
                return x / 0
            if d == 3:
                {}["k"]
            return x
        except KeyError as e:
            raise ValueError("wrapped") from e
        finally:
            log.append(d)

    def f(x, d):
        try:
            return inner(x, d)
        except E as e:
            return e.code, str(e), e.args
        except ValueError as e:
            return repr(e.__cause__), type(e.__context__).__name__
        else:
            return 0
        finally:
            if len(log) > 6:
                log.clear()

    return f, lambda k: (torch.ones(2) * k, k % 4)


@prog
def suppressing_with():
    st = []

    class W:
        def __init__(s, n):
            s.n = n

        def __enter__(s):
            st.append(("in", s.n))
            return s

        def __exit__(s, t, v, tb):
            st.append(("out", s.n, t and t.__name__))
            return s.n == 1

    def f(x, bad):
        with W(0) as a, W(1) as b:
            x = x + 1
            if bad and x.sum() > 2:
                raise RuntimeError("x")
            x = x * 3
        with contextlib.suppress(ZeroDivisionError):
            x = x + 1 // (0 if bad else 1)
        return x, st[-4:]

    return f, lambda k: (torch.randn(3) + k % 3, k % 2 == 0)


@prog
def recursion():
    def tree(x, d):
        if d == 0 or x.abs().max() < 0.1:
            return {"leaf": x.sum()}
        l, r = x.chunk(2, -1)
        return {"l": tree(l * 0.9, d - 1), "r": tree(r * 0.5, d - 1), "d": d}

    def f(x, d):
        return tree(x, d)

    return f, lambda k: (torch.randn(8), 1 + k % 3)


@prog
def threadlocal_ctxvar():
    tl = threading.local()
    cv = contextvars.ContextVar("cv", default=1.0)

    def f(x, v):
        tl.n = getattr(tl, "n", 0) + 1
        tok = cv.set(v)
        try:
            y = x * cv.get()
        finally:
            cv.reset(tok)
        return y, tl.n, cv.get()

    return f, lambda k: (torch.ones(2), k / 2)


@prog
def numpy_mix():
    st = {"m": np.zeros(3)}

    def f(x):
        a = x.numpy()
        st["m"] = st["m"] * 0.9 + a * 0.1
        b = np.where(a > 0, a, -a)
        x.add_(1)
        c = torch.from_numpy(b) * 2
        return (
            c,
            float(st["m"].sum()),
            a[0].item(),
            np.argsort(a).tolist(),
            torch.as_tensor(a).data_ptr() == x.data_ptr(),
        )

    return f, lambda k: (torch.randn(3),)


@prog
def pickle_copy():
    def f(x, d):
        e = copy.deepcopy(d)
        e["l"].append(x.sum().item() > 0)
        b = pickle.loads(pickle.dumps({"n": len(e["l"])}))
        s = copy.copy(d)
        s["z"] = 1
        return e, b, s, d["t"] is s["t"], e["t"] is d["t"], x + b["n"]

    return f, lambda k: (torch.randn(2), {"l": [1] * (k % 3), "t": torch.ones(2)})


@prog
def fileio():
    tmp = tempfile.mkdtemp()

    def f(x, i):
        p = os.path.join(tmp, f"{i}.txt")
        with open(p, "w") as h:
            h.write(f"{x.sum().item():.4f}")
        with open(p) as h:
            v = float(h.read())
        os.remove(p)
        return x * v, os.path.exists(p)

    return f, lambda k: (torch.randn(2), k)


@prog
def views_inplace():
    def f(x):
        v = x.view(-1)[2:6]
        w = x.t()
        v.mul_(2)
        w[0] += 1
        x[1:, ::2] = 0
        y = x.clone()
        y[y > 1] = -1
        x.data = x.data * 1
        torch.add(x, 1, out=y)
        return v, w, y, x.is_contiguous(), v._base is x

    return f, lambda k: (torch.randn(4, 4),)


@prog
def grads_toggle():
    p = torch.randn(3, requires_grad=True)

    def f(x, on):
        seen = []
        with torch.set_grad_enabled(on):
            y = (p * x).tanh()
            if y.requires_grad:
                y.register_hook(lambda g: seen.append(g.sum().item()))
                y.retain_grad()
            z = y.sum()
        if on:
            z.backward()
            g = p.grad.clone()
            p.grad = None
            return z.detach(), g, seen, y.grad
        return z, seen

    return f, lambda k: (torch.randn(3), k % 2 == 0)


@prog
def set_and_tensor_keys():
    a, b = torch.ones(2), torch.zeros(2)
    names = {a: "a", b: "b"}

    def f(x, which):
        t = [a, b][which]
        s = {1, 2} | {which}
        fs = frozenset(s)
        return x + t, names[t], sorted(s), fs >= {1}, t in names, len({id(t), id(a)})

    return f, lambda k: (torch.randn(2), k % 2)


@prog
def sort_items():
    def f(d):
        ks = sorted(d, key=lambda k: d[k].sum().item())
        best = max(d.items(), key=lambda kv: kv[1].max())
        z = dict(zip(ks, range(9)))
        return (
            ks,
            best[0],
            z,
            torch.cat([d[k] for k in sorted(d)]),
            min(ks),
            list(reversed(ks)),
            list(map(str.upper, ks)),
            [k for k, _ in itertools.groupby("aabbc")],
        )

    return f, lambda k: ({c: torch.randn(2) for c in "xyz"},)


@prog
def fractions_decimal():
    def f(x, n):
        r = fractions.Fraction(n, 3) + 1
        d = decimal.Decimal(n) / 4
        return x * float(r), str(d), x * float(d), r.numerator, statistics.mean([1, 2, n])

    return f, lambda k: (torch.ones(2), k)


@prog
def struct_bytes():
    def f(x):
        b = struct.pack("3f", *x.tolist())
        a = array.array("f", b)
        m = memoryview(b)
        ba = bytearray(b)
        ba[0] ^= 1
        return (
            torch.tensor(list(a)),
            len(m),
            bytes(ba) != b,
            torch.frombuffer(bytearray(b), dtype=torch.float32) + x,
        )

    return f, lambda k: (torch.randn(3),)


@prog
def warn_and_trace():
    def f(x, n):
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            warnings.warn(f"w{n}") if x.sum() > 0 else None
        try:
            raise KeyError(n)
        except KeyError:
            t = traceback.format_exc().splitlines()[-1]
        return x, [str(i.message) for i in w], t, inspect.currentframe().f_code.co_name

    return f, lambda k: (torch.randn(2), k)


@prog
def weakrefs():
    class N:
        pass

    reg = weakref.WeakValueDictionary()
    keep = []

    def f(x, hold):
        n = N()
        n.t = x
        reg[len(reg)] = n
        r = weakref.ref(n)
        if hold:
            keep.append(n)
        alive = r() is not None
        del n
        return alive, len(reg) > 0, r() is None, x + len(keep)

    return f, lambda k: (torch.ones(2), k % 3 == 0)


@prog
def match_patterns():
    @dataclasses.dataclass
    class P:
        x: torch.Tensor
        y: int

    def f(v):
        match v:
            case {"k": int(n), **rest} if n > 2:
                return n, sorted(rest)
            case {"k": n}:
                return "small", n
            case [torch.Tensor() as t, *more]:
                return t * 2, len(more)
            case P(x=t, y=0):
                return t
            case P(x=t, y=y):
                return t * y
            case str() as s:
                return s[::-1]
            case _:
                return None

    vs = [{"k": 5, "z": 1}, {"k": 1}, [torch.ones(2), 3], P(torch.ones(2), 0), P(torch.ones(2), 4), "abc", 7]
    return f, lambda k: (vs[k % 7],)


@prog
def async_loop():

    async def sub(x, n):
        await asyncio.sleep(0)
        return x * n

    async def main(x):
        r = await asyncio.gather(*[sub(x, i) for i in range(3)])
        return sum(r)

    def f(x):
        return asyncio.run(main(x)) + 1

    return f, lambda k: (torch.ones(2) * k,)


@prog
def queue_worker():
    def f(x):
        q = queue.Queue()
        out = []

        def w():
            while True:
                i = q.get()
                if i is None:
                    break
                out.append(i * 2)

        t = threading.Thread(target=w)
        t.start()
        [q.put(x + i) for i in range(3)]
        q.put(None)
        t.join()
        return torch.stack(out)

    return f, lambda k: (torch.randn(2),)


@prog
def simple_ns():
    ns = types.SimpleNamespace(step=0, hist=[])

    def f(x):
        ns.step += 1
        ns.hist = ns.hist[-2:] + [x.norm().item()]
        ns.__dict__["extra"] = ns.step
        return x / ns.step, list(ns.hist), vars(ns)["extra"]

    return f, lambda k: (torch.randn(3),)


@prog
def string_work():
    T = string.Template("$a-$b")

    def f(x, name):
        s = T.substitute(a=name, b=x.numel())
        p, _, q = s.partition("-")
        w = textwrap.shorten(s * 5, 12)
        n = name.translate(str.maketrans("ab", "ba"))
        return (
            s,
            p,
            q,
            w,
            n,
            name.encode()[0],
            f"{name:>8}|{x.shape!r:<30}|{x.sum().item():+.2e}",
            "".join(sorted(name)),
            name.split("b"),
            int("0x1f", 16),
        )

    return f, lambda k: (torch.ones(2, 3), "ab" * (1 + k % 3))


@prog
def bn_train_eval():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))

    def f(x, train):
        net.train(train)
        return net(x), net[1].running_mean.clone(), net[1].num_batches_tracked

    return f, lambda k: (torch.randn(6, 4), k % 3 != 0)


@prog
def hooks_between():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    hs = []

    def f(x, act):
        if act == 1:
            hs.append(net[0].register_forward_hook(lambda m, i, o: o * 2))
        if act == 2 and hs:
            hs.pop().remove()
        if act == 3:
            hs.append(net.register_forward_pre_hook(lambda m, a: (a[0] + 1,)))
        return net(x), len(net[0]._forward_hooks), len(net._forward_pre_hooks)

    return f, lambda k: (torch.randn(2, 3), [0, 1, 0, 2, 3, 0, 2, 0][k % 8])


@prog
def module_swaps():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.a = nn.Linear(3, 3)
            s.register_buffer("t", torch.zeros(3))
            s.k = 0
            s.d = nn.ModuleDict({"r": nn.ReLU(), "t": nn.Tanh()})

        def forward(s, x, name):
            s.k += 1
            s.t.add_(x.mean(0))
            s.t = s.t * 0.9 if s.k % 4 == 0 else s.t
            return s.d[name](s.a(x)) + s.t

    m = M()

    def f(x, k):
        if k == 5:
            m.a = nn.Linear(3, 3, bias=False)
        if k == 8:
            m.a.weight = nn.Parameter(torch.ones(3, 3))
        if k == 10:
            m.load_state_dict({n: torch.zeros_like(v) for n, v in m.state_dict().items()})
        if k == 12:
            m.d["r"] = nn.Sigmoid()
        return m(x, "rt"[k % 2]), m.k, sorted(m.state_dict())

    return f, lambda k: (torch.randn(2, 3), k)
