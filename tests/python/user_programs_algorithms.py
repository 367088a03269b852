"""Programs as users write them: algorithms and the structures they keep. See test_user_programs.py."""

from __future__ import annotations

import bisect
import collections
import contextlib
import csv
import functools
import hashlib
import heapq
import io
import itertools
import json
import math
import operator
import random
import re
import textwrap

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from user_programs import prog


@prog
def tree_lstm():
    class Tree:
        def __init__(self, v, kids=()):
            self.v = v
            self.kids = list(kids)

    cell = nn.Linear(8, 8)
    emb = nn.Embedding(10, 8)

    def enc(t):
        if not t.kids:
            return torch.tanh(emb(torch.tensor(t.v)))
        hs = [enc(k) for k in t.kids]
        return torch.tanh(cell(torch.stack(hs).sum(0)) + emb(torch.tensor(t.v)))

    def step(t):
        h = enc(t)
        return h, h.norm().item() > 1.0

    def args(i):
        def mk(d, s):
            return Tree((s + i) % 10, [mk(d - 1, s + j) for j in range(1 + (s + i) % 2)] if d else [])

        return (mk(2 + i % 2, i),)

    return step, args


@prog
def router_by_name():
    heads = nn.ModuleDict({"cls": nn.Linear(4, 3), "reg": nn.Linear(4, 1), "seg": nn.Linear(4, 5)})
    used = collections.Counter()

    def step(batch):
        out = {}
        for name, x in batch.items():
            used[name] += 1
            out[name] = heads[name](x)
            if name == "cls":
                out[name] = out[name].softmax(-1)
        return out, dict(used)

    def args(i):
        names = [["cls", "reg"], ["seg"], ["reg", "cls", "seg"]][i % 3]
        return ({n: torch.randn(2, 4) for n in names},)

    return step, args


@prog
def regex_tokens():
    vocab = {}
    emb = nn.Embedding(64, 6)
    pat = re.compile(r"\w+|[^\w\s]")

    def step(text):
        toks = pat.findall(text.lower())
        ids = [vocab.setdefault(t, len(vocab)) for t in toks]
        x = emb(torch.tensor(ids))
        return x.mean(0), len(vocab), " ".join(sorted(set(toks)))

    texts = ["Hello, world!", "the cat sat; the dog ran.", "Hello again the world", "A b c d e"]
    return step, lambda i: (texts[i % 4],)


@prog
def maml():
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def step(xs, ys, xq, yq):
        params = dict(net.named_parameters())
        fast = params
        for _ in range(2):
            loss = F.mse_loss(torch.func.functional_call(net, fast, (xs,)), ys)
            gs = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {k: p - 0.1 * g for (k, p), g in zip(fast.items(), gs)}
        outer = F.mse_loss(torch.func.functional_call(net, fast, (xq,)), yq)
        net.zero_grad()
        outer.backward()
        return outer.detach(), [p.grad.clone() for p in net.parameters()]

    return step, lambda i: (
        torch.randn(5, 3),
        torch.randn(5, 1),
        torch.randn(4 + i % 3, 3),
        torch.randn(4 + i % 3, 1),
    )


@prog
def gan_penalty():
    g = nn.Linear(4, 6)
    d = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    og = torch.optim.Adam(g.parameters(), 1e-2)
    od = torch.optim.Adam(d.parameters(), 1e-2)
    log = []

    def step(real, it):
        z = torch.randn(real.shape[0], 4)
        fake = g(z).detach()
        eps = torch.rand(real.shape[0], 1)
        mix = (eps * real + (1 - eps) * fake).requires_grad_()
        (grad,) = torch.autograd.grad(d(mix).sum(), mix, create_graph=True)
        gp = ((grad.norm(2, dim=1) - 1) ** 2).mean()
        ld = d(fake).mean() - d(real).mean() + 10 * gp
        od.zero_grad()
        ld.backward()
        od.step()
        lg = None
        if it % 3 == 0:
            lg = -d(g(torch.randn(real.shape[0], 4))).mean()
            og.zero_grad()
            lg.backward()
            og.step()
            log.append(f"{it}: d={ld.item():.4f} g={lg.item():.4f}")
        return ld.detach(), None if lg is None else lg.detach(), list(log)

    return step, lambda i: (torch.randn(4, 6), i)


@prog
def mixup_beta():
    net = nn.Linear(5, 3)
    rng = np.random.default_rng(3)

    def step(x, y):
        lam = rng.beta(0.4, 0.4)
        perm = torch.randperm(x.size(0))
        xm = lam * x + (1 - lam) * x[perm]
        out = net(xm)
        return lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[perm]), round(float(lam), 6)

    return step, lambda i: (torch.randn(6, 5), torch.randint(0, 3, (6,)))


@prog
def sinkhorn():
    def step(C, eps):
        n, m = C.shape
        u = torch.zeros(n)
        v = torch.zeros(m)
        its = 0
        for its in range(50):
            u0 = u
            u = -torch.logsumexp((v[None] - C / eps), 1) - math.log(n)
            v = -torch.logsumexp((u[:, None] - C / eps), 0) - math.log(m)
            if (u - u0).abs().max() < 1e-3:
                break
        else:
            its = -1
        P = torch.exp(u[:, None] + v[None] - C / eps)
        return P, its

    return step, lambda i: (torch.rand(4 + i % 2, 5), [0.5, 0.2, 1.0][i % 3])


@prog
def dbscan():
    def step(x, eps):
        n = len(x)
        D = torch.cdist(x, x)
        labels = [None] * n
        c = -1
        for p in range(n):
            if labels[p] is not None:
                continue
            nb = (D[p] < eps).nonzero().flatten().tolist()
            if len(nb) < 3:
                labels[p] = -1
                continue
            c += 1
            labels[p] = c
            seeds = [q for q in nb if q != p]
            while seeds:
                q = seeds.pop(0)
                if labels[q] == -1:
                    labels[q] = c
                if labels[q] is not None:
                    continue
                labels[q] = c
                nq = (D[q] < eps).nonzero().flatten().tolist()
                if len(nq) >= 3:
                    seeds.extend(nq)
        return torch.tensor(labels), c + 1

    return step, lambda i: (torch.randn(9 + i % 3, 2), 0.9 + 0.1 * (i % 2))


@prog
def viterbi():
    trans = nn.Parameter(torch.randn(4, 4))
    start = nn.Parameter(torch.randn(4))

    def step(em):
        score = start + em[0]
        back = []
        for t in range(1, em.size(0)):
            s = score[:, None] + trans + em[t][None]
            score, idx = s.max(0)
            back.append(idx)
        best = int(score.argmax())
        path = [best]
        for idx in reversed(back):
            best = int(idx[best])
            path.append(best)
        path.reverse()
        return path, score.max().detach()

    return step, lambda i: (torch.randn(5 + i % 4, 4),)


@prog
def capsule_routing():
    W = nn.Parameter(torch.randn(3, 6, 4, 5) * 0.1)

    def squash(s):
        n2 = (s**2).sum(-1, keepdim=True)
        return n2 / (1 + n2) * s / n2.sqrt()

    def step(u):
        uh = torch.einsum("bid,jidk->bjik", u, W)
        b = torch.zeros(u.size(0), 3, 6)
        for r in range(3):
            c = b.softmax(1)
            v = squash((c[..., None] * uh).sum(2))
            if r < 2:
                b = b + (uh * v[:, :, None]).sum(-1)
        return v, v.norm(dim=-1).argmax(-1)

    return step, lambda i: (torch.randn(2 + i % 2, 6, 4),)


@prog
def particle_filter():
    state = {"p": None, "w": None, "resampled": 0}

    def step(obs):
        if state["p"] is None:
            state["p"] = torch.randn(16, 2)
            state["w"] = torch.full((16,), 1 / 16)
        state["p"] = state["p"] + 0.1 * torch.randn(16, 2)
        lik = torch.exp(-((state["p"] - obs) ** 2).sum(1))
        w = state["w"] * lik
        w = w / w.sum()
        if 1.0 / (w**2).sum() < 8:
            idx = torch.multinomial(w, 16, replacement=True)
            state["p"] = state["p"][idx]
            w = torch.full((16,), 1 / 16)
            state["resampled"] += 1
        state["w"] = w
        return (state["p"] * w[:, None]).sum(0), state["resampled"]

    return step, lambda i: (torch.tensor([0.1 * i, -0.1 * i]),)


@prog
def metropolis():
    rng = random.Random(5)
    st = [torch.zeros(2), 0]

    def logp(x):
        return -(x**2).sum() - torch.sin(3 * x).sum()

    def step(n):
        x = st[0]
        acc = 0
        for _ in range(n):
            y = x + 0.5 * torch.tensor([rng.gauss(0, 1), rng.gauss(0, 1)])
            if math.log(rng.random()) < (logp(y) - logp(x)).item():
                x = y
                acc += 1
        st[0] = x
        st[1] += acc
        return x, acc, st[1]

    return step, lambda i: (3 + i % 2,)


@prog
def bandit():
    q = np.zeros(4)
    n = np.zeros(4, dtype=int)
    rng = np.random.RandomState(0)

    def step(ctx):
        p = torch.from_numpy(q).float() + 0.1 * ctx
        if rng.rand() < 0.3:
            a = rng.randint(4)
        else:
            a = int(p.argmax())
        r = float(ctx[a]) + rng.randn() * 0.1
        n[a] += 1
        q[a] += (r - q[a]) / n[a]
        return a, torch.from_numpy(q.copy()), n.tolist()

    return step, lambda i: (torch.randn(4),)


@prog
def vq_ema():
    class VQ(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("code", torch.randn(6, 3))
            self.register_buffer("n", torch.ones(6))
            self.register_buffer("m", self.code.clone())

        def forward(self, z):
            d = torch.cdist(z, self.code)
            i = d.argmin(1)
            q = self.code[i]
            if self.training:
                oh = F.one_hot(i, 6).type_as(z)
                with torch.no_grad():
                    self.n.mul_(0.9).add_(oh.sum(0), alpha=0.1)
                    self.m.mul_(0.9).add_(oh.t() @ z, alpha=0.1)
                    self.code.copy_(self.m / self.n.clamp(min=1e-2)[:, None])
                    dead = self.n < 0.3
                    if dead.any():
                        self.code[dead] = (
                            z[: int(dead.sum())].detach() if dead.sum() <= len(z) else self.code[dead]
                        )
            return z + (q - z).detach(), i

    m = VQ()

    def step(z, train):
        m.train(train)
        return m(z), m.code.clone()

    return step, lambda i: (torch.randn(7, 3), i % 3 != 2)


@prog
def rope_cache():
    class R:
        def __init__(self):
            self.cos = None
            self.n = 0
            self.builds = 0

        def get(self, n):
            if n > self.n:
                t = torch.arange(n).float()
                f = torch.outer(t, 1.0 / 10 ** torch.arange(0, 4, 2).float())
                self.cos = f.cos()
                self.sin = f.sin()
                self.n = n
                self.builds += 1
            return self.cos[:n], self.sin[:n]

    r = R()

    def step(x):
        c, s = r.get(x.shape[0])
        a, b = x[:, ::2], x[:, 1::2]
        return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(1), r.builds

    return step, lambda i: (torch.randn([3, 5, 4, 8, 2][i % 5], 4),)


@prog
def stream_tokens():
    lm = nn.Linear(6, 9)
    emb = nn.Embedding(9, 6)

    def gen(tok, n):
        h = emb(torch.tensor(tok))
        for _ in range(n):
            logits = lm(h)
            t = int(torch.multinomial(logits.softmax(-1), 1))
            stop = yield t
            if stop or t == 0:
                return "stopped"
            h = 0.5 * h + emb(torch.tensor(t))
        return "length"

    def step(tok, n):
        out = []
        g = gen(tok, n)
        try:
            t = next(g)
            while True:
                out.append(t)
                t = g.send(len(out) > 4)
        except StopIteration as e:
            return out, e.value

    return step, lambda i: (i % 9, 3 + i % 4)


@prog
def registry_decorators():
    ops = {}

    def register(name=None):
        def deco(f):
            ops[name or f.__name__] = f
            return f

        return deco

    @register()
    def relu(x):
        return x.relu()

    @register("scale")
    def _s(x, k=2.0):
        return x * k

    @register()
    def center(x, *, dim=0):
        return x - x.mean(dim, keepdim=True)

    def step(x, pipeline):
        trace = []
        for item in pipeline:
            name, kw = item if isinstance(item, tuple) else (item, {})
            try:
                x = ops[name](x, **kw)
            except KeyError as e:
                trace.append(f"unknown {e}")
                continue
            trace.append(name)
        return x, trace

    ps = [["relu", ("scale", {"k": 3.0})], [("center", {"dim": 1}), "nope", "relu"], ["scale", "center"]]
    return step, lambda i: (torch.randn(3, 4), ps[i % 3])


@prog
def exit_stack_retry():
    events = []

    class Res:
        def __init__(self, n):
            self.n = n

        def __enter__(self):
            events.append(f"+{self.n}")
            return self

        def __exit__(self, t, v, tb):
            events.append(f"-{self.n}:{t.__name__ if t else None}")
            return t is ValueError and self.n == 0

    def step(x, n):
        r = None
        with contextlib.ExitStack() as st:
            for i in range(n):
                st.enter_context(Res(i))
            st.callback(events.append, "cb")
            r = x.sum()
            if r > 0:
                raise ValueError("pos")
            r = r * 2
        return r, events[-6:]

    return step, lambda i: (torch.randn(4), 1 + i % 3)


@prog
def retry_backoff():
    class Flaky(Exception):
        pass

    tries = collections.defaultdict(int)

    def attempt(x, k):
        tries[k] += 1
        if tries[k] % 3:
            raise Flaky(f"{k}:{tries[k]}")
        return x * tries[k]

    def step(x, k):
        errs = []
        for a in range(4):
            try:
                y = attempt(x, k)
            except Flaky as e:
                errs.append(str(e))
            else:
                break
            finally:
                errs.append("f")
        return y, errs

    return step, lambda i: (torch.randn(2), "ab"[i % 2])


@prog
def format_report():
    def step(x):
        s = x.std()
        lines = [
            f"{'mean':>8}|{x.mean():8.3f}",
            f"{'std':>8}|{s.item():<8.2e}|",
            "%d items, max %.2f" % (x.numel(), x.max()),
            "{0:{w}.{p}f}".format(float(x[0]), w=10, p=2),
            f"{x.shape!r} {x.dtype}",
        ]
        return textwrap.indent("\n".join(lines), "  ")

    return step, lambda i: (torch.randn(4 + i % 2),)


@prog
def json_csv_hash():
    def step(x, name):
        rows = x.tolist()
        buf = io.StringIO()
        w = csv.writer(buf)
        w.writerow(["a", "b"])
        w.writerows(rows)
        h = hashlib.sha1(buf.getvalue().encode()).hexdigest()[:8]
        d = json.loads(json.dumps({"n": name, "v": rows, "h": h}, sort_keys=True))
        return d, torch.tensor(d["v"]).sum()

    return step, lambda i: (torch.randn(2, 2), f"n{i}")


@prog
def itertools_mix():
    def step(x, ks):
        out = []
        for a, b in itertools.product(range(2), repeat=2):
            out.append(x[a] * x[b])
        for k, g in itertools.groupby(sorted(ks), key=lambda v: v % 2):
            out.append(x.sum() + sum(g) + k)
        acc = list(itertools.accumulate(ks, operator.mul))
        z = list(itertools.zip_longest(ks, acc[:2], fillvalue=0))
        ch = list(itertools.islice(itertools.chain.from_iterable(z), 5))
        tw = [a for a in itertools.takewhile(lambda v: v < 5, ks)]
        return torch.stack(out), acc, ch, tw, functools.reduce(lambda p, q: p + q, out)

    return step, lambda i: (torch.randn(3), [3, 1, 4 + i, 2])


@prog
def bisect_heap():
    sched = [0.1, 0.5, 0.9]
    heap = []

    def step(x):
        v = x.mean().sigmoid().item()
        k = bisect.bisect_right(sched, v)
        heapq.heappush(heap, (v, len(heap)))
        if len(heap) > 4:
            heapq.heappop(heap)
        return x * k, [h[1] for h in sorted(heap)], heapq.nlargest(2, heap)[0][0]

    return step, lambda i: (torch.randn(3) * 3,)


@prog
def random_module_use():
    def step(x, items):
        random.shuffle(items)
        pick = random.choices(items, k=2)
        s = random.sample(range(x.numel()), 2)
        u = random.uniform(0, 1)
        if random.random() < 0.5:
            x = x + u
        return x[s], pick, items, random.randint(0, 9), random.choice("abc")

    return step, lambda i: (torch.randn(5), list(range(4)))


@prog
def chainmap_userdict():
    class Cfg(collections.UserDict):
        def __missing__(self, k):
            return self.data.setdefault(k, len(self.data))

    base = Cfg(a=1)
    over = {}

    def step(x, k):
        cm = collections.ChainMap(over, base.data)
        over[k] = over.get(k, 0) + 1
        return x * base[k] + cm["a"], dict(cm), len(base)

    return step, lambda i: (torch.randn(2), "abcd"[i % 4])
