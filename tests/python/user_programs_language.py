"""Programs as users write them: what the language, torch and the standard library offer. See test_user_programs.py."""

# ruff: noqa: E742  written as others write

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import copy
import datetime
import importlib
import inspect
import io
import itertools
import logging
import math
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from user_programs import prog


@prog
def save_load_bytes():
    m = nn.Linear(3, 2)

    def step(x):
        b = io.BytesIO()
        torch.save(m.state_dict(), b)
        b.seek(0)
        m2 = nn.Linear(3, 2)
        m2.load_state_dict(torch.load(b))
        with torch.no_grad():
            m.weight.mul_(0.9)
        return m(x), m2(x)

    return step, lambda i: (torch.randn(2, 3),)


@prog
def clip_and_norms():
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    o = torch.optim.SGD(m.parameters(), 0.5, momentum=0.9, nesterov=True)
    hist = []

    def step(x):
        o.zero_grad(set_to_none=False)
        l = m(x).pow(2).mean()
        l.backward()
        n = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
        if not torch.isfinite(n):
            return None
        hist.append(round(n.item(), 4))
        o.step()
        return l.detach(), n, hist[-3:], max(hist)

    return step, lambda i: (torch.randn(5, 4) * (1 + i),)


@prog
def weight_norm_param():
    m = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    s = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))

    def step(x, train):
        s.train(train)
        y = s(m(x))
        g = torch.autograd.grad(y.sum(), [m.parametrizations.weight.original1])[0]
        return y, g

    return step, lambda i: (torch.randn(2, 4), i % 2 == 0)


@prog
def distributions_mix():
    loc = nn.Parameter(torch.zeros(3))
    ls = nn.Parameter(torch.zeros(3))

    def step(x):
        q = torch.distributions.Independent(torch.distributions.Normal(loc, ls.exp()), 1)
        z = q.rsample((4,))
        p = torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3))
        kl = (q.log_prob(z) - p.log_prob(z)).mean()
        c = torch.distributions.Categorical(logits=x)
        a = c.sample()
        (kl - c.log_prob(a).mean()).backward()
        g = loc.grad.clone()
        loc.grad = None
        ls.grad = None
        return kl.detach(), a, c.entropy().detach(), g

    def args(i):
        return (torch.randn(2, 4),)

    return step, args


@prog
def linalg_errors():
    def step(a):
        try:
            l = torch.linalg.cholesky(a)
            kind = "chol"
        except torch.linalg.LinAlgError as e:
            w, v = torch.linalg.eigh(a)
            l = v * w.clamp(min=1e-6).sqrt()
            kind = type(e).__name__
        return l @ l.mT, kind

    def args(i):
        b = torch.randn(3, 3)
        return (b @ b.t() + (torch.eye(3) if i % 2 else -5 * torch.eye(3)),)

    return step, args


@prog
def unique_counts():
    seen = {}

    def step(x):
        u, inv, cnt = torch.unique(x, return_inverse=True, return_counts=True)
        for k, c in zip(u.tolist(), cnt.tolist()):
            seen[k] = seen.get(k, 0) + c
        top = sorted(seen.items(), key=lambda kv: (-kv[1], kv[0]))[:2]
        b = torch.bincount(x, minlength=6)
        return u, inv, b, top, torch.histc(x.float(), 4, 0, 6)

    return step, lambda i: (torch.randint(0, 3 + i % 3, (8,)),)


@prog
def sparse_graph():
    lin = nn.Linear(3, 3)

    def step(idx, n, x):
        a = torch.sparse_coo_tensor(idx, torch.ones(idx.shape[1]), (n, n)).coalesce()
        deg = torch.sparse.sum(a, 1).to_dense().clamp(min=1)
        h = torch.sparse.mm(a, lin(x)) / deg[:, None]
        return h, a._nnz(), a.is_coalesced()

    def args(i):
        n = 4 + i % 2
        return (torch.randint(0, n, (2, 6)), n, torch.randn(n, 3))

    return step, args


@prog
def jit_inside():
    @torch.jit.script
    def f(x: torch.Tensor, k: int):
        y = x
        for _ in range(k):
            y = torch.tanh(y) + x
        return y

    def step(x, k):
        return f(x, k) * 2

    return step, lambda i: (torch.randn(3), 1 + i % 3)


@prog
def hvp_functional():
    def f(x):
        return (x**3).sum() + x.prod()

    def step(x, v):
        j = torch.autograd.functional.jacobian(f, x)
        o, h = torch.autograd.functional.hvp(f, x, v)
        j2 = torch.func.jacrev(f)(x)
        h2 = torch.func.hessian(f)(x)
        return j, o, h, j2, h2 @ v

    return step, lambda i: (torch.randn(3), torch.randn(3))


@prog
def saved_hooks_fork_rng():
    m = nn.Linear(3, 3)
    packs = []

    def pack(t):
        packs.append(tuple(t.shape))
        return t.numpy().copy() if not t.requires_grad else t

    def unpack(t):
        return torch.from_numpy(t) if isinstance(t, np.ndarray) else t

    def step(x):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            a = torch.randn(3)
        b = torch.randn(3)
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = (m(x) * a).tanh() * b
        y.sum().backward()
        g = m.weight.grad.clone()
        m.zero_grad()
        return y.detach(), g, len(packs)

    return step, lambda i: (torch.randn(2, 3),)


@prog
def default_dtype_switch():
    def step(n, dbl):
        old = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64 if dbl else torch.float32)
        try:
            z = torch.linspace(0, 1, n) + torch.tensor(0.5)
            return z, z.dtype, torch.finfo(z.dtype).eps
        finally:
            torch.set_default_dtype(old)

    return step, lambda i: (3 + i % 2, i % 3 == 0)


@prog
def thread_pool():
    m = nn.Linear(4, 4)

    def work(x):
        with torch.no_grad():
            return m(x).relu()

    def step(xs):
        with concurrent.futures.ThreadPoolExecutor(2) as ex:
            fs = [ex.submit(work, x) for x in xs]
            r = [f.result() for f in fs]
        return torch.stack(r), list(map(lambda t: t.sum().item(), r))

    return step, lambda i: ([torch.randn(4) for _ in range(2 + i % 2)],)


@prog
def async_gather():
    async def one(x, k):
        await asyncio.sleep(0)
        return x * k

    async def main(x):
        rs = await asyncio.gather(*(one(x, k) for k in range(3)))

        async def agen():
            for r in rs:
                yield r + 1

        return torch.stack([r async for r in agen()])

    def step(x):
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(main(x))
        finally:
            loop.close()

    return step, lambda i: (torch.randn(3),)


@prog
def inspect_dispatch():
    def f1(x, y=2, *, scale=1.0):
        return x * y * scale

    def f2(x, **kw):
        return x + sum(kw.values())

    def step(x, opts):
        out = []
        for f in (f1, f2):
            sig = inspect.signature(f)
            names = [p.name for p in sig.parameters.values() if p.kind is not p.VAR_KEYWORD]
            has_kw = any(p.kind is p.VAR_KEYWORD for p in sig.parameters.values())
            kw = {k: v for k, v in opts.items() if has_kw or k in names}
            out.append(f(x, **kw))
        return out

    return step, lambda i: (torch.randn(2), [{"y": 3}, {"scale": 0.5, "z": 1}, {}][i % 3])


@prog
def catch_warnings_record():
    def step(x, deep):
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            if x.sum() > 0:
                warnings.warn(f"positive {deep}", UserWarning)
            if deep:
                warnings.warn("dep", DeprecationWarning)
        return x.abs(), [(str(m.message), m.category.__name__) for m in w]

    return step, lambda i: (torch.randn(3), i % 2 == 0)


@prog
def setattr_loops():
    class O:
        pass

    o = O()

    def step(x, names):
        for j, n in enumerate(names):
            setattr(o, n, x * j)
        vars(o).update(last=names[-1])
        tot = sum(getattr(o, n) for n in names if hasattr(o, n))
        if len(vars(o)) > 4:
            for n in [k for k in vars(o) if k.startswith("p")]:
                delattr(o, n)
        return tot, sorted(vars(o))

    return step, lambda i: (torch.randn(2), [f"p{i % 3}", f"q{i % 2}", "r"])


@prog
def eval_exec():
    ns = {"torch": torch}

    def step(x, src):
        ns["x"] = x
        exec("def h(t):\n    return t * 2 + 1", ns)
        return eval(src, ns), ns["h"](x)

    return step, lambda i: (torch.randn(2), ["x + 1", "torch.relu(x)", "x.sum()"][i % 3])


@prog
def lazy_import():
    cache = {}

    def step(x, n):
        import statistics

        if n not in cache:
            cache[n] = importlib.import_module(n)
        mod = cache[n]
        return x * getattr(mod, "pi", 1.0), statistics.mean(x.tolist()), sorted(cache)

    return step, lambda i: (torch.randn(3), ["math", "cmath", "string"][i % 3])


@prog
def rl_env():
    class Env:
        def __init__(self, seed):
            self.rng = np.random.default_rng(seed)
            self.reset()

        def reset(self):
            self.s = np.zeros(3, np.float32)
            self.t = 0
            return self.s

        def step(self, a):
            self.s = self.s + self.rng.normal(size=3).astype(np.float32) * (a + 1)
            self.t += 1
            return self.s, float(-np.abs(self.s).sum()), bool(np.abs(self.s).max() > 4 or self.t >= 6), {}

    pol = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    opt = torch.optim.Adam(pol.parameters(), 1e-2)
    env = Env(0)

    def step(_):
        s = env.reset()
        lps, rs, done = [], [], False
        while not done:
            d = torch.distributions.Categorical(logits=pol(torch.from_numpy(s)))
            a = d.sample()
            s, r, done, _i = env.step(a.item())
            lps.append(d.log_prob(a))
            rs.append(r)
        R, rets = 0.0, []
        for r in rs[::-1]:
            R = r + 0.9 * R
            rets.insert(0, R)
        rets = torch.tensor(rets)
        rets = (rets - rets.mean()) / (rets.std() + 1e-6) if len(rets) > 1 else rets
        loss = -(torch.stack(lps) * rets).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach(), len(rs)

    return step, lambda i: (i,)


@prog
def ema_model():
    m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    ema = copy.deepcopy(m).requires_grad_(False)
    n = [0]
    opt = torch.optim.AdamW(m.parameters())

    def step(x):
        l = m(x).square().mean()
        opt.zero_grad()
        l.backward()
        opt.step()
        n[0] += 1
        d = min(0.9, (1 + n[0]) / (10 + n[0]))
        with torch.no_grad():
            for a, b in zip(ema.parameters(), m.parameters()):
                a.lerp_(b, 1 - d)
            for a, b in zip(ema.buffers(), m.buffers()):
                a.copy_(b)
        ema.eval()
        return l.detach(), ema(x), d

    return step, lambda i: (torch.randn(4, 3),)


@prog
def global_history():
    hist = {"loss": [], "best": float("inf"), "tags": []}

    def step(x, tag):
        l = x.pow(2).mean()
        hist["loss"].append(l.item())
        hist["tags"].append(tag)
        if hist["loss"][-1] < hist["best"]:
            hist["best"] = hist["loss"][-1]
            hist["best_tag"] = tag
        avg = sum(hist["loss"][-5:]) / len(hist["loss"][-5:])
        return l, avg, hist["best"], hist["best_tag"], len(hist["loss"])

    return step, lambda i: (torch.randn(3), f"step-{i}")


@prog
def logger_texts():
    log = logging.Logger("nu")
    log.propagate = False
    log.setLevel(logging.INFO)
    buf = io.StringIO()
    h = logging.StreamHandler(buf)
    h.setFormatter(logging.Formatter("%(levelname)s:%(message)s"))
    log.handlers = [h]

    def step(x, name):
        log.info("run %s mean %.3f", name, x.mean())
        log.debug("hidden")
        if name.endswith("3"):
            log.warning(f"{name.upper()!r} {len(name)}")
        parts = name.split("-")
        return x * int(parts[1]), buf.getvalue()[-60:], name.replace("run", "r").title()

    return step, lambda i: (torch.randn(2), f"run-{i}")


@prog
def tensor_list_mutation():
    pool = [torch.zeros(2) for _ in range(3)]

    def step(x, j):
        pool[j] += x
        pool.append(pool.pop(0))
        pool[0:1] = [pool[0] * 0.5]
        a, *rest, z = pool
        a.add_(1)
        return [p.clone() for p in pool], z is pool[-1], pool.index(z) if False else len(rest)

    return step, lambda i: (torch.randn(2), i % 3)


@prog
def kwargs_pipeline():
    def inner(x, /, a, *args, b=1, **kw):
        return x * a + sum(args) + b + sum(kw.values()), sorted(kw)

    def outer(*args, **kwargs):
        kwargs.setdefault("b", 5)
        return inner(*args, **{k: v for k, v in kwargs.items() if v is not None})

    def step(x, args, kw):
        try:
            return outer(x, *args, **kw)
        except TypeError as e:
            return str(e)

    cs = [((1,), {"c": 2}), ((1, 2, 3), {}), ((), {}), ((2,), {"b": None, "d": 4})]
    return step, lambda i: (torch.randn(2), *cs[i % 4])


@prog
def amp_autocast():
    m = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2))

    def step(x, y, on):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            o = m(x)
            l = F.cross_entropy(o, y)
            with torch.autocast("cpu", enabled=False):
                s = (o.float() ** 2).mean()
        (l + s).backward()
        g = [p.grad.clone() for p in m.parameters()]
        m.zero_grad()
        return o.dtype, l.detach(), g

    return step, lambda i: (torch.randn(3, 4), torch.randint(0, 2, (3,)), i % 2 == 0)


@prog
def datetime_paths():
    import pathlib

    base = datetime.datetime(2024, 1, 1)

    def step(x, d):
        t = base + datetime.timedelta(days=d, hours=float(x.abs().sum()) // 1)
        p = pathlib.PurePosixPath("/a/b") / f"{t:%Y-%m-%d}" / "x.tar.gz"
        return x * t.day, p.name, p.suffixes, str(p.parent), t.weekday(), t.isoformat()

    return step, lambda i: (torch.randn(2), i)


@prog
def speculative_decode():
    d = nn.Linear(5, 7)
    t = nn.Linear(5, 7)
    e = nn.Embedding(7, 5)

    def step(ids):
        ids = list(ids)
        accepted = 0
        for _ in range(3):
            draft = []
            h = e(torch.tensor(ids[-2:])).mean(0)
            for _ in range(2):
                p = d(h).softmax(-1)
                k = int(torch.multinomial(p, 1))
                draft.append((k, p[k]))
                h = (h + e(torch.tensor(k))) / 2
            h = e(torch.tensor(ids[-2:])).mean(0)
            for k, pk in draft:
                q = t(h).softmax(-1)
                if torch.rand(()) < (q[k] / pk).clamp(max=1):
                    ids.append(k)
                    accepted += 1
                    h = (h + e(torch.tensor(k))) / 2
                else:
                    ids.append(int(q.argmax()))
                    break
        return ids, accepted

    return step, lambda i: ([1, 2, i % 7],)


@prog
def crf_loss():
    T = nn.Parameter(torch.randn(3, 3))
    opt = torch.optim.RMSprop([T], 0.01)

    def step(em, tags, lens):
        tot = em.new_zeros(())
        for b, n in enumerate(lens):
            a = em[b, 0]
            gold = em[b, 0, tags[b, 0]]
            for k in range(1, n):
                a = torch.logsumexp(a[:, None] + T, 0) + em[b, k]
                gold = gold + T[tags[b, k - 1], tags[b, k]] + em[b, k, tags[b, k]]
            tot = tot + torch.logsumexp(a, 0) - gold
        opt.zero_grad()
        tot.backward()
        opt.step()
        return tot.detach(), T.detach().clone()

    return step, lambda i: (torch.randn(2, 4, 3), torch.randint(0, 3, (2, 4)), [4, 2 + i % 3])


@prog
def window_generator():
    def windows(xs, n):
        it = iter(xs)
        w = collections.deque(itertools.islice(it, n), n)
        if len(w) == n:
            yield tuple(w)
        for v in it:
            w.append(v)
            yield tuple(w)

    def step(x, n):
        return torch.stack([torch.stack(w).mean(0) for w in windows(x, n)]) if len(x) >= n else None

    return step, lambda i: (torch.randn(4 + i % 3, 2), 2 + i % 4)


@prog
def tensor_as_key_cache():
    cache = {}

    def step(x, k):
        key = (tuple(x.shape), x.dtype, k)
        if key not in cache:
            cache[key] = torch.arange(x.numel()).view(x.shape) * k
        y = x + cache[key]
        return y, len(cache), id(cache[key]) == id(cache[key])

    return step, lambda i: (torch.randn(2, 2 + i % 2), 1.0 + i % 2)


@prog
def gradient_surgery():
    m = nn.Linear(4, 2)

    def step(x):
        o = m(x)
        gs = []
        for k in range(2):
            g = torch.autograd.grad(o[:, k].sum(), m.parameters(), retain_graph=True)
            gs.append(torch.cat([q.flatten() for q in g]))
        dot = gs[0] @ gs[1]
        if dot < 0:
            gs[0] = gs[0] - dot / gs[1].norm() ** 2 * gs[1]
        off = 0
        for p in m.parameters():
            p.grad = gs[0][off : off + p.numel()].view_as(p).clone()
            off += p.numel()
        with torch.no_grad():
            for p in m.parameters():
                p -= 0.1 * p.grad
        return gs[0], dot < 0

    return step, lambda i: (torch.randn(3, 4),)


@prog
def inplace_slices_conv():
    buf = torch.zeros(3, 4)

    def step(x, k):
        buf[k % 3, 1:3] = x[:2]
        buf[:, 0].add_(1)
        buf[buf > 3] = 0
        v = buf.view(-1)[::2]
        v *= 1.5
        buf.masked_fill_(buf.isnan(), 0).clamp_(max=9)
        return buf.clone(), v.sum(), buf._version > 0

    return step, lambda i: (torch.randn(4), i)


@prog
def learning_rate_finder():
    def step(x, y):
        w = torch.zeros(3, requires_grad=True)
        best, lr, hist = None, 1e-3, []
        while lr < 10:
            l = ((x @ w - y) ** 2).mean()
            l.backward()
            with torch.no_grad():
                w -= lr * w.grad
                w.grad = None
            v = l.item()
            hist.append(v)
            if best is None or v < best:
                best = v
            if v > 4 * best or math.isnan(v):
                break
            lr *= 2.5
        return hist, lr, best

    return step, lambda i: (torch.randn(6, 3), torch.randn(6))


@prog
def quantize_int8():
    w = torch.randn(4, 4)

    def step(x):
        s = x.abs().amax() / 127
        q = torch.clamp((x / s).round(), -128, 127).to(torch.int8)
        acc = q.int() @ torch.ones(4, 4, dtype=torch.int32)
        z = torch.quantize_per_tensor(x, float(s), 0, torch.qint8)
        return acc * s, q, z.int_repr(), z.dequantize()

    return step, lambda i: (torch.randn(2, 4),)


@prog
def nested_functions_defaults():
    def make(k):
        calls = 0

        def f(x, acc=[]):
            nonlocal calls
            calls += 1
            acc.append(k)
            return x * k + len(acc), calls

        return f

    fs = [make(k) for k in range(3)]

    def step(x, j):
        a, n = fs[j](x)
        f = lambda v, q=a: v + q
        return f(x), n, (lambda *z: len(z))(*fs)

    return step, lambda i: (torch.randn(2), i % 3)
