"""Programs as users write them: texts, containers and control flow. See test_user_programs.py."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import heapq
import itertools
import random
import re

import torch
import torch.nn as nn
import torch.nn.functional as F
from user_programs import prog


@prog
def tokenizer_and_bag():
    emb = nn.EmbeddingBag(64, 8)
    lin = nn.Linear(8, 3)
    pat = re.compile(r"[a-z]+")

    def f(text):
        words = pat.findall(text.lower())
        ids = torch.tensor([hash_(w) for w in words])
        off = torch.tensor([0])
        logits = lin(emb(ids, off))
        return {
            "label": ["neg", "neu", "pos"][logits.argmax().item()],
            "p": logits.softmax(-1),
            "n": len(words),
        }

    def hash_(w):
        return sum(ord(c) * (i + 1) for i, c in enumerate(w)) % 64

    texts = [
        "the quick brown fox",
        "jumps over",
        "a lazy dog and the fox",
        "hello",
        "to be or not to be that is",
    ]
    return f, lambda k: (texts[k % 5],)


@prog
def dataclass_config():
    @dataclasses.dataclass
    class Cfg:
        scale: float = 1.0
        bias: bool = True
        names: list = dataclasses.field(default_factory=list)

    @dataclasses.dataclass(frozen=True)
    class Out:
        y: torch.Tensor
        stats: dict

    w = nn.Linear(4, 4)

    def f(x, cfg):
        y = w(x) * cfg.scale
        if cfg.bias:
            y = y + 1
        cfg.names.append(f"call{len(cfg.names)}")
        o = Out(y, {"mean": y.mean().item()})
        return dataclasses.replace(o, stats={**o.stats, "n": len(cfg.names)}), dataclasses.asdict(cfg)

    cfgs = collections.defaultdict(lambda: Cfg(1.5, True))
    return f, lambda k: (torch.randn(3, 4), Cfg(1.0 + k / 10, k % 2 == 0, ["a"]))


@prog
def early_stopping_search():
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))

    def f(x, tol):
        best = float("inf")
        hist = []
        lr = 0.1
        for i in range(30):
            g = torch.autograd.functional.jacobian(lambda z: net(z).sum(), x) if False else (x * 0.1)
            x = x - lr * g
            v = net(x).pow(2).mean().item()
            hist.append(round(v, 6))
            if abs(best - v) < tol:
                break
            if v > best:
                lr *= 0.5
            best = min(best, v)
        return x, hist, lr

    return f, lambda k: (torch.randn(2, 6), [1e-3, 1e-4, 1e-2][k % 3])


@prog
def kmeans():
    def f(x, k):
        c = x[:k].clone()
        for it in range(10):
            a = torch.cdist(x, c).argmin(1)
            new = torch.stack([x[a == j].mean(0) if (a == j).any() else c[j] for j in range(k)])
            if torch.allclose(new, c, atol=1e-4):
                break
            c = new
        return c, a, it

    return f, lambda k: (torch.randn(30, 2), 3)


@prog
def nms_loop():
    def iou(b, o):
        lt = torch.max(b[:2], o[:, :2])
        rb = torch.min(b[2:], o[:, 2:])
        wh = (rb - lt).clamp(min=0)
        i = wh[:, 0] * wh[:, 1]
        area = lambda t: (t[..., 2] - t[..., 0]) * (t[..., 3] - t[..., 1])
        return i / (area(b) + area(o) - i)

    def f(boxes, scores, thr=0.5):
        order = scores.argsort(descending=True)
        keep = []
        while order.numel() > 0:
            i = order[0]
            keep.append(i.item())
            if order.numel() == 1:
                break
            rest = order[1:]
            order = rest[iou(boxes[i], boxes[rest]) < thr]
        return torch.tensor(keep)

    def a(k):
        g = torch.Generator().manual_seed(k)
        xy = torch.rand(12, 2, generator=g)
        wh = torch.rand(12, 2, generator=g) * 0.5
        return torch.cat([xy, xy + wh], 1), torch.rand(12, generator=g)

    return f, a


@prog
def state_machine_enum():
    class S(enum.Enum):
        A = 1
        B = 2
        C = 3

    W = {S.A: torch.randn(4, 4), S.B: torch.randn(4, 4), S.C: torch.randn(4, 4)}

    def f(x, s):
        tr = []
        for _ in range(4):
            x = torch.tanh(x @ W[s])
            tr.append(s.name)
            match s:
                case S.A:
                    s = S.B if x.sum() > 0 else S.C
                case S.B:
                    s = S.C
                case _:
                    s = S.A
        return x, tr, s

    return f, lambda k: (torch.randn(2, 4), [S.A, S.B, S.C][k % 3])


@prog
def lru_and_partial():
    @functools.lru_cache(maxsize=None)
    def table(n):
        return torch.arange(n).float() / n

    def scaled(t, *, by):
        return t * by

    def f(x, n):
        ops = [functools.partial(scaled, by=2.0), torch.sin, lambda t: t - t.mean()]
        return functools.reduce(lambda a, g: g(a), ops, x[:n] + table(n)), table.cache_info().currsize > 0

    return f, lambda k: (torch.randn(16), 3 + k % 4)


@prog
def text_decode_greedy():
    emb = nn.Embedding(20, 12)
    rnn = nn.GRUCell(12, 12)
    out = nn.Linear(12, 20)

    def f(start, maxlen):
        h = torch.zeros(1, 12)
        t = torch.tensor([start])
        toks = []
        while len(toks) < maxlen:
            h = rnn(emb(t), h)
            t = out(h).argmax(-1)
            toks.append(t.item())
            if toks[-1] == 3:
                break
        return toks, h

    return f, lambda k: (k % 20, 8)


@prog
def packed_lstm():
    lstm = nn.LSTM(4, 6, batch_first=True)

    def f(seqs):
        lens = torch.tensor([len(s) for s in seqs])
        p = nn.utils.rnn.pad_sequence(seqs, batch_first=True)
        o, (h, c) = lstm(nn.utils.rnn.pack_padded_sequence(p, lens, batch_first=True, enforce_sorted=False))
        o, l = nn.utils.rnn.pad_packed_sequence(o, batch_first=True)
        return o, l, h

    return f, lambda k: ([torch.randn(2 + (k + i) % 4, 4) for i in range(3)],)


@prog
def custom_autograd():
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, lo, hi):
            ctx.save_for_backward(x)
            ctx.b = (lo, hi)
            return x.clamp(lo, hi)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            lo, hi = ctx.b
            return g * ((x > lo) & (x < hi)), None, None

    lin = nn.Linear(4, 4)

    def f(x):
        x = x.clone().requires_grad_()
        y = Clip.apply(lin(x), -0.5, 0.5).sum()
        (g,) = torch.autograd.grad(y, x)
        return y.detach(), g

    return f, lambda k: (torch.randn(3, 4),)


@prog
def vmap_jac():
    def f(x, w):
        return torch.func.vmap(torch.func.grad(lambda v: (v @ w).tanh().sum()))(x), torch.func.jacrev(
            lambda v: (v @ w).sin()
        )(x[0])

    return f, lambda k: (torch.randn(5, 3), torch.randn(3, 2))


@prog
def moe():
    gate = nn.Linear(8, 4)
    ex = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def f(x):
        p, i = gate(x).softmax(-1).topk(2, -1)
        y = torch.zeros_like(x)
        for e, m in enumerate(ex):
            r, s = (i == e).nonzero(as_tuple=True)
            if r.numel() == 0:
                continue
            y.index_add_(0, r, m(x[r]) * p[r, s, None])
        return y, torch.bincount(i.flatten(), minlength=4).tolist()

    return f, lambda k: (torch.randn(6, 8),)


@prog
def replay_buffer():
    buf = collections.deque(maxlen=5)
    q = nn.Linear(3, 2)
    rng = random.Random(0)

    def f(s, eps):
        a = rng.randrange(2) if rng.random() < eps else q(s).argmax().item()
        buf.append((s, a))
        b = list(itertools.islice(buf, 0, 3))
        return a, torch.stack([t for t, _ in b]).mean(), [x for _, x in buf]

    return f, lambda k: (torch.randn(3), 0.5)


@prog
def ctx_and_hooks():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    feats = {}
    net[1].register_forward_hook(lambda m, i, o: feats.__setitem__("relu", o.detach()))

    @contextlib.contextmanager
    def evalmode(m):
        t = m.training
        m.eval()
        try:
            yield m
        finally:
            m.train(t)

    def f(x):
        with evalmode(net) as m, torch.no_grad():
            y = m(x)
        return y, feats["relu"], net.training

    return f, lambda k: (torch.randn(2, 4),)


@prog
def string_keys_and_slices():
    def f(batch):
        out = {
            k: (v.float().mean(-1) if v.dim() > 1 else v)
            for k, v in sorted(batch.items())
            if not k.startswith("_")
        }
        first, *rest = out.values()
        m = torch.cat([r.flatten() for r in rest]) if rest else first
        return out, m[::2], m[-1:], f"{len(out)} keys {m.shape}"

    return f, lambda k: ({"b": torch.randn(2, 3), "a": torch.randn(2), "_x": k, "c": torch.ones(2, 2)},)


@prog
def numeric_newton():
    def f(a):
        x = a / 2
        for i in range(50):
            n = 0.5 * (x + a / x)
            if torch.max(torch.abs(n - x)) < 1e-6:
                break
            x = n
        return x, i

    return f, lambda k: (torch.rand(4) * 10 + 0.1,)


@prog
def attention_cache():
    qkv = nn.Linear(8, 24)

    def f(xs):
        K = []
        V = []
        outs = []
        for x in xs:
            q, k, v = qkv(x).chunk(3, -1)
            K.append(k)
            V.append(v)
            outs.append(
                F.scaled_dot_product_attention(q[None, None], torch.stack(K)[None], torch.stack(V)[None])[
                    0, 0
                ]
            )
        return torch.stack(outs)

    return f, lambda k: ([torch.randn(8) for _ in range(3 + k % 3)],)


@prog
def heap_of_tuples():
    h = []

    def f(x):
        heapq.heappush(h, (x.sum().item(), len(h)))
        if len(h) > 4:
            heapq.heappop(h)
        return h[0], [b for _, b in sorted(h)], x * h[0][0]

    return f, lambda k: (torch.randn(3),)


@prog
def ordered_lru():
    od = collections.OrderedDict()

    def f(key, x):
        if key in od:
            od.move_to_end(key)
            y = od[key]
        else:
            y = x * 2
            od[key] = y
            if len(od) > 2:
                od.popitem(last=False)
        return y + 1, list(od)

    return f, lambda k: (k % 3 if k % 5 else 7, torch.full((2,), float(k)))


@prog
def counter_votes():
    c = collections.Counter()

    def f(x):
        lab = x.argmax(-1).tolist()
        c.update(lab)
        top, n = c.most_common(1)[0]
        return top, n, dict(c), x[:, top]

    return f, lambda k: (torch.randn(5, 3),)


@prog
def defaultdict_groups():
    g = collections.defaultdict(list)

    def f(x, tag):
        g[tag].append(x.mean())
        return {k: torch.stack(v).sum() for k, v in g.items()}, len(g[tag])

    return f, lambda k: (torch.randn(3), "ab"[k % 2])


@prog
def kept_iterator():
    it = itertools.cycle([1.0, 2.0, 3.0])
    cnt = itertools.count(5)

    def f(x):
        return x * next(it), next(cnt)

    return f, lambda k: (torch.ones(2),)


@prog
def kept_generator():
    def gen():
        a = 0
        while True:
            got = yield a
            a += 1 if got is None else got

    g = gen()
    next(g)

    def f(x, v):
        return x * g.send(v)

    return f, lambda k: (torch.ones(2), [None, 3][k % 2])


@prog
def nonlocal_and_default():
    n = 0

    def f(x, acc=[]):
        nonlocal n
        n += 1
        acc.append(x.sum().item() > 0)
        return x * n, sum(acc), len(acc)

    return f, lambda k: (torch.randn(3),)


@prog
def class_attrs():
    class A:
        total = 0
        seen = set()

        def __init__(s, w):
            s.w = w

        @property
        def scaled(s):
            return s.w * A.total

        @scaled.setter
        def scaled(s, v):
            A.total = v

        @classmethod
        def bump(c, n):
            c.total += n
            c.seen.add(n)
            return c

        @staticmethod
        def sq(x):
            return x * x

        def __getattr__(s, name):
            if name.startswith("dyn_"):
                return int(name[4:])
            raise AttributeError(name)

    def f(x, k):
        a = A(x)
        A.bump(k)
        a.scaled = A.total + 1
        return a.scaled, A.sq(x), len(A.seen), a.dyn_7, hasattr(a, "nope"), getattr(a, "nope", 3)

    return f, lambda k: (torch.ones(2), k % 3)
