"""Programs as users write them: small projects. See test_user_programs.py."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import operator
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from user_programs import prog


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.sum = 0.0
        self.n = 0
        self.hist = collections.deque(maxlen=3)

    def update(self, v, k=1):
        self.sum += v * k
        self.n += k
        self.hist.append(v)

    @property
    def avg(self):
        return self.sum / max(1, self.n)


@prog
def trainer_class():
    class Cb:
        def on_step(self, t):
            pass

        def on_epoch(self, t):
            pass

    class Early(Cb):
        def __init__(self, patience):
            self.best = math.inf
            self.bad = 0
            self.patience = patience
            self.stopped = False

        def on_epoch(self, t):
            if t.meter.avg < self.best - 1e-4:
                self.best = t.meter.avg
                self.bad = 0
            else:
                self.bad += 1
            if self.bad >= self.patience:
                self.stopped = True

    class Log(Cb):
        def __init__(self):
            self.lines = []

        def on_step(self, t):
            if t.step_no % 2 == 0:
                self.lines.append(f"step {t.step_no}: loss={t.last:.4f} lr={t.opt.param_groups[0]['lr']:.2e}")

    class Trainer:
        def __init__(self):
            self.m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
            self.opt = torch.optim.AdamW(self.m.parameters(), 1e-2)
            self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, 10)
            self.meter = Meter()
            self.cbs = [Early(2), Log()]
            self.step_no = 0

        def epoch(self, batches):
            self.meter.reset()
            self.m.train()
            for x, y in batches:
                self.opt.zero_grad()
                loss = F.mse_loss(self.m(x).squeeze(-1), y)
                loss.backward()
                self.opt.step()
                self.step_no += 1
                self.last = loss.item()
                self.meter.update(self.last, len(x))
                for c in self.cbs:
                    c.on_step(self)
            self.sched.step()
            for c in self.cbs:
                c.on_epoch(self)
            return (
                self.meter.avg,
                self.cbs[0].stopped,
                self.cbs[1].lines[-2:],
                [round(v, 5) for v in self.meter.hist],
            )

    t = Trainer()
    return t.epoch, lambda i: (
        [(torch.randn(3 + (j == 1), 4), torch.randn(3 + (j == 1))) for j in range(2 + i % 2)],
    )


@prog
def graph_net():
    class GNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
            self.att = nn.Parameter(torch.randn(8))

        def forward(self, x, ei, batch):
            for w in self.w:
                h = w(x)
                s, d = ei
                e = F.leaky_relu((torch.cat([h[s], h[d]], -1) * self.att).sum(-1))
                e = e - e.new_zeros(len(x)).scatter_reduce(0, d, e, "amax", include_self=False)[d]
                a = e.exp()
                a = a / a.new_zeros(len(x)).index_add(0, d, a)[d].clamp(min=1e-9)
                x = x + F.elu(torch.zeros_like(x).index_add_(0, d, a[:, None] * h[s]))
            n = int(batch.max()) + 1
            return torch.stack([x[batch == b].mean(0) for b in range(n)])

    g = GNN()

    def args(i):
        n = 5 + i % 3
        return torch.randn(n, 4), torch.randint(0, n, (2, 8)), torch.sort(torch.randint(0, 2, (n,)))[0]

    return g, args


@prog
def detector_post():
    def iou(a, b):
        lt = torch.max(a[:, None, :2], b[None, :, :2])
        rb = torch.min(a[:, None, 2:], b[None, :, 2:])
        wh = (rb - lt).clamp(min=0)
        inter = wh.prod(-1)
        ar = lambda q: (q[:, 2:] - q[:, :2]).prod(-1)
        return inter / (ar(a)[:, None] + ar(b)[None] - inter + 1e-9)

    def step(boxes, scores, labels):
        out = []
        for c in labels.unique().tolist():
            m = (labels == c) & (scores > 0.2)
            b, s = boxes[m], scores[m]
            if not len(b):
                continue
            order = s.argsort(descending=True)
            keep = []
            while order.numel():
                i = order[0]
                keep.append(i.item())
                if order.numel() == 1:
                    break
                order = order[1:][iou(b[i][None], b[order[1:]])[0] < 0.4]
            for k in keep:
                out.append(
                    {"box": [round(v, 4) for v in b[k].tolist()], "score": round(float(s[k]), 4), "label": c}
                )
        out.sort(key=operator.itemgetter("score"), reverse=True)
        return out[:5], len(out)

    def args(i):
        p = torch.rand(6 + i % 3, 2)
        return (
            torch.cat([p, p + 0.3 + torch.rand_like(p) * 0.2], 1),
            torch.rand(len(p)),
            torch.randint(0, 3, (len(p),)),
        )

    return step, args


@prog
def seq2seq_teacher():
    enc = nn.GRU(4, 6, batch_first=True)
    cell = nn.GRUCell(5, 6)
    emb = nn.Embedding(7, 5)
    out = nn.Linear(6, 7)

    def step(x, tgt, ratio):
        _, h = enc(x)
        h = h[0]
        tok = torch.zeros(len(x), dtype=torch.long)
        logits = []
        for t in range(tgt.shape[1]):
            h = cell(emb(tok), h)
            lo = out(h)
            logits.append(lo)
            tok = tgt[:, t] if random.random() < ratio else lo.argmax(-1)
            if (tok == 6).all():
                break
        lo = torch.stack(logits, 1)
        return (
            F.cross_entropy(lo.flatten(0, 1), tgt[:, : lo.shape[1]].flatten(), ignore_index=6),
            tok,
            len(logits),
        )

    return step, lambda i: (torch.randn(2, 3 + i % 2, 4), torch.randint(0, 7, (2, 4)), [0.0, 0.5, 1.0][i % 3])


@prog
def ner_bio():
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    lin = nn.Linear(4, 5)

    def step(x, words):
        ids = lin(x).argmax(-1).tolist()
        spans, cur = [], None
        for j, (k, w) in enumerate(zip(ids, words)):
            t = tags[k]
            if t.startswith("B-"):
                if cur:
                    spans.append(cur)
                cur = {"type": t[2:], "words": [w], "start": j}
            elif t.startswith("I-") and cur and cur["type"] == t[2:]:
                cur["words"].append(w)
            else:
                if cur:
                    spans.append(cur)
                    cur = None
        if cur:
            spans.append(cur)
        return [(s["type"], " ".join(s["words"]), s["start"]) for s in spans], collections.Counter(
            tags[k] for k in ids
        ).most_common(2)

    return step, lambda i: (torch.randn(5 + i % 2, 4), "the cat of Rome sleeps now".split()[: 5 + i % 2])


@prog
def param_groups_freeze():
    m = nn.ModuleDict({"body": nn.Linear(3, 3), "head": nn.Linear(3, 2)})
    opt = torch.optim.SGD(
        [
            {"params": m["body"].parameters(), "lr": 0.01, "name": "body"},
            {"params": m["head"].parameters(), "lr": 0.1, "weight_decay": 0.1, "name": "head"},
        ],
        momentum=0.9,
    )

    def step(x, ep):
        for n, p in m.named_parameters():
            p.requires_grad_(not (n.startswith("body") and ep < 3))
        for g in opt.param_groups:
            if g["name"] == "head":
                g["lr"] = 0.1 * 0.5 ** (ep // 2)
        l = m["head"](F.relu(m["body"](x))).logsumexp(-1).mean()
        opt.zero_grad(set_to_none=True)
        l.backward()
        opt.step()
        return (
            l.detach(),
            sum(p.numel() for p in m.parameters() if p.requires_grad),
            [g["lr"] for g in opt.param_groups],
            {n: None if p.grad is None else p.grad.norm() for n, p in m.named_parameters()},
        )

    return step, lambda i: (torch.randn(4, 3), i // 2)


@prog
def prioritized_replay():
    class SumTree:
        def __init__(self, n):
            self.n = n
            self.t = [0.0] * (2 * n)
            self.d = [None] * n
            self.k = 0
            self.size = 0

        def add(self, p, v):
            self.d[self.k] = v
            self.set(self.k, p)
            self.k = (self.k + 1) % self.n
            self.size = min(self.size + 1, self.n)

        def set(self, i, p):
            i += self.n
            self.t[i] = p
            i //= 2
            while i:
                self.t[i] = self.t[2 * i] + self.t[2 * i + 1]
                i //= 2

        def get(self, s):
            i = 1
            while i < self.n:
                i *= 2
                if s > self.t[i]:
                    s -= self.t[i]
                    i += 1
            return i - self.n

    tr = SumTree(4)
    q = nn.Linear(3, 2)
    rng = random.Random(1)

    def step(s, a, r):
        tr.add(abs(r) + 0.01, (s, a, r))
        idx = [min(tr.get(rng.random() * tr.t[1]), tr.size - 1) for _ in range(2)]
        b = [tr.d[i] for i in idx]
        S = torch.stack([v[0] for v in b])
        A = torch.tensor([v[1] for v in b])
        R = torch.tensor([v[2] for v in b])
        td = (R - q(S).gather(1, A[:, None]).squeeze(1)).detach()
        for i, d in zip(idx, td.abs().tolist()):
            tr.set(i, d + 0.01)
        return td, idx, round(tr.t[1], 5), tr.size

    return step, lambda i: (torch.randn(3), i % 2, float(i % 5) - 2)


@prog
def lazy_and_memo():
    class Lazy:
        def __init__(self, f):
            self.f = f
            self.done = False

        def __call__(self):
            if not self.done:
                self.v = self.f()
                self.done = True
            return self.v

    memo = {}

    def memoize(f):
        @functools.wraps(f)
        def w(*a):
            k = tuple(id(q) if isinstance(q, torch.Tensor) else q for q in a)
            if k[1:] not in memo:
                memo[k[1:]] = 0
            memo[k[1:]] += 1
            return f(*a)

        w.calls = memo
        return w

    @memoize
    def f(x, n, mode="a"):
        return x**n if mode == "a" else x * n

    def step(x, n):
        l = Lazy(lambda: f(x, n))
        y = l() + l()
        z = f(x, n, "b") if y.sum() > 0 else None
        return y, z, dict(memo), f.__name__, f.calls is memo

    return step, lambda i: (torch.randn(3), 1 + i % 3)


@prog
def undo_stack():
    hist = []
    st = {"v": torch.zeros(3)}

    def step(cmd, x):
        if cmd == "add":
            hist.append(("sub", x))
            st["v"] = st["v"] + x
        elif cmd == "mul":
            hist.append(("div", x))
            st["v"] = st["v"] * (x.abs() + 1)
        elif cmd == "undo" and hist:
            c, a = hist.pop()
            st["v"] = st["v"] - a if c == "sub" else st["v"] / (a.abs() + 1)
        else:
            return "nothing", st["v"]
        return len(hist), st["v"].clone()

    return step, lambda i: (["add", "mul", "undo", "add", "undo", "undo", "bad"][i % 7], torch.randn(3))


@prog
def matrix_ops_class():
    @dataclasses.dataclass
    class Vec:
        t: torch.Tensor
        tag: str = ""

        def __add__(self, o):
            return Vec(self.t + (o.t if isinstance(o, Vec) else o), self.tag + "+")

        __radd__ = __add__

        def __mul__(self, o):
            return Vec(self.t * getattr(o, "t", o), self.tag + "*")

        def __rmul__(self, o):
            return self * o

        def __neg__(self):
            return Vec(-self.t, "-" + self.tag)

        def __sub__(self, o):
            return self + (-o)

        def __eq__(self, o):
            return isinstance(o, Vec) and torch.equal(self.t, o.t)

        def __lt__(self, o):
            return bool(self.t.norm() < o.t.norm())

        def __getitem__(self, k):
            return Vec(self.t[k], f"{self.tag}[{k}]") if isinstance(k, slice) else self.t[k].item()

        def __len__(self):
            return len(self.t)

        def __iter__(self):
            return (self.t[j] for j in range(len(self)))

        def __abs__(self):
            return self.t.norm().item()

        def __bool__(self):
            return bool(self.t.any())

        def __format__(self, s):
            return ",".join(format(v, s) for v in self.t.tolist())

    def step(a, b):
        u, v = Vec(a, "u"), Vec(b, "v")
        w = 2 * u + v * 3 - u
        s = sum([u, v, w])
        m = max([u, v, w])
        q = sorted([u, v, w])
        return (
            w.t,
            s.t,
            s.tag,
            m.tag,
            [z.tag for z in q],
            u == Vec(a),
            u[1:].tag,
            w[0],
            abs(w),
            bool(Vec(torch.zeros(2))),
            f"{u:.2f}",
            torch.stack(list(w)),
            u != v,
        )

    return step, lambda i: (torch.randn(3), torch.randn(3))


@prog
def interpolate_table():
    xs = torch.linspace(0, 1, 5)
    ys = xs**2

    def step(q):
        k = torch.searchsorted(xs, q).clamp(1, 4)
        x0, x1 = xs[k - 1], xs[k]
        w = (q - x0) / (x1 - x0)
        r = ys[k - 1] * (1 - w) + ys[k] * w
        if q.max() > 0.9:
            r[q > 0.9] = 1
        return r, torch.bucketize(q, xs), np.interp(q.numpy(), xs.numpy(), ys.numpy()).round(5).tolist()

    return step, lambda i: (torch.rand(4),)


@prog
def batch_by_length():
    def step(seqs):
        groups = collections.defaultdict(list)
        for j, s in enumerate(seqs):
            groups[len(s)].append(j)
        out = [None] * len(seqs)
        for n in sorted(groups):
            b = torch.stack([seqs[j] for j in groups[n]])
            r = b.cumsum(1).softmax(-1)
            for j, v in zip(groups[n], r):
                out[j] = v
        pad = nn.utils.rnn.pad_sequence(out, batch_first=True, padding_value=-1)
        mask = pad != -1
        return pad, mask.sum(1), list(groups)

    return step, lambda i: ([torch.randn(n) for n in [[3, 2, 3], [1, 4, 2, 4], [2, 2]][i % 3]],)


@prog
def anneal_schedules():
    class Sched:
        def __init__(self, *parts):
            self.parts = parts
            self.t = 0

        def __next__(self):
            k = self.t
            self.t += 1
            for n, f in self.parts:
                if k < n:
                    return f(k / n)
                k -= n
            return 0.0

        def __iter__(self):
            return self

    s = Sched((3, lambda p: p), (5, lambda p: 0.5 * (1 + math.cos(math.pi * p))), (4, lambda p: 1 - p))

    def step(x):
        b = next(s)
        kl = (x**2).mean()
        return kl * b, b, s.t

    return step, lambda i: (torch.randn(3),)


@prog
def token_healing():
    vocab = {"a": 0, "b": 1, "ab": 2, "ba": 3, "aba": 4}
    inv = {v: k for k, v in vocab.items()}
    emb = nn.Embedding(5, 3)

    def enc(s):
        out, j = [], 0
        while j < len(s):
            for n in (3, 2, 1):
                if s[j : j + n] in vocab:
                    out.append(vocab[s[j : j + n]])
                    j += n
                    break
            else:
                raise ValueError(f"unknown {s[j]!r} at {j}")
        return out

    def step(s):
        try:
            ids = enc(s)
        except ValueError as e:
            return str(e)
        return emb(torch.tensor(ids)).mean(0), "".join(inv[k] for k in ids) == s, ids

    return step, lambda i: (["abab", "abaab", "bxa", "baab", "a"][i % 5],)


@prog
def soft_dtw():
    def step(a, b, g):
        n, m = len(a), len(b)
        D = (a[:, None] - b[None]) ** 2
        R = [[torch.tensor(float("inf"))] * (m + 1) for _ in range(n + 1)]
        R[0][0] = torch.tensor(0.0)
        for i in range(1, n + 1):
            for j in range(1, m + 1):
                R[i][j] = D[i - 1, j - 1] - g * torch.logsumexp(
                    torch.stack([-R[i - 1][j], -R[i][j - 1], -R[i - 1][j - 1]]) / g, 0
                )
        return R[n][m]

    return step, lambda i: (torch.randn(3), torch.randn(2 + i % 2), [1.0, 0.5][i % 2])


@prog
def checkpointed_blocks():
    from torch.utils.checkpoint import checkpoint

    bs = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2)])

    def step(x, use):
        x = x.clone().requires_grad_()
        h = x
        for b in bs:
            h = checkpoint(b, h, use_reentrant=False) if use else b(h)
        h.sum().backward()
        g = [p.grad.clone() for p in bs.parameters()]
        bs.zero_grad()
        return h.detach(), x.grad, g

    return step, lambda i: (torch.randn(2, 4), i % 2 == 0)


@prog
def masked_lm():
    emb = nn.Embedding(12, 6)
    tr = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 12, 0.0, batch_first=True), 1)
    head = nn.Linear(6, 12)

    def step(ids, lens):
        mask = torch.arange(ids.shape[1])[None] >= torch.tensor(lens)[:, None]
        lab = ids.clone()
        pick = (torch.rand(ids.shape) < 0.3) & ~mask
        lab[~pick] = -100
        inp = ids.masked_fill(pick, 11)
        h = tr(emb(inp), src_key_padding_mask=mask)
        lo = head(h)
        if not pick.any():
            return lo.sum() * 0, 0
        return (
            F.cross_entropy(lo.view(-1, 12), lab.view(-1)),
            int(pick.sum()),
            (lo.argmax(-1)[pick] == ids[pick]).float().mean().item(),
        )

    return step, lambda i: (torch.randint(0, 11, (2, 4 + i % 2)), [4, 2 + i % 2])


@prog
def bit_tricks():
    def step(x, k):
        m = x & ((1 << k) - 1)
        s = (x >> k) ^ (x << 1)
        p = torch.zeros_like(x)
        while (x != 0).any():
            p = p + (x & 1)
            x = x >> 1
        return m, s, p, ~m, bin(int(p.sum())).count("1"), int(p[0]) << k, k.bit_length()

    return step, lambda i: (torch.randint(0, 64, (4,)), 1 + i % 4)


@prog
def nested_data():
    def flat(o, path=()):
        if isinstance(o, dict):
            for k in sorted(o):
                yield from flat(o[k], path + (k,))
        elif isinstance(o, (list, tuple)):
            for j, v in enumerate(o):
                yield from flat(v, path + (j,))
        else:
            yield path, o

    def build(items):
        root = {}
        for p, v in items:
            d = root
            for k in p[:-1]:
                d = d.setdefault(k, {})
            d[p[-1]] = v
        return root

    def step(tree):
        it = {p: (v * 2 if isinstance(v, torch.Tensor) else str(v)) for p, v in flat(tree)}
        return (
            build(it.items()),
            torch.utils._pytree.tree_map(lambda v: v + 1 if isinstance(v, torch.Tensor) else v, tree),
            len(it),
        )

    return step, lambda i: (
        {
            "a": torch.randn(2),
            "b": [1, {"c": torch.randn(1), "d": (torch.ones(1), "x")}],
            **({"z": i % 2} if i % 3 else {}),
        },
    )


@prog
def kalman():
    st = {"x": torch.zeros(2), "P": torch.eye(2)}
    A = torch.tensor([[1.0, 0.1], [0.0, 1.0]])
    H = torch.tensor([[1.0, 0.0]])

    def step(z):
        x = A @ st["x"]
        P = A @ st["P"] @ A.T + 0.01 * torch.eye(2)
        if z is not None:
            S = H @ P @ H.T + 0.1
            K = P @ H.T @ torch.linalg.inv(S)
            x = x + (K @ (z - H @ x))
            P = (torch.eye(2) - K @ H) @ P
        st.update(x=x, P=P)
        return x.clone(), P.diagonal().sum()

    return step, lambda i: (None if i % 4 == 3 else torch.tensor([0.1 * i]),)
