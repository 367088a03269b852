"""Programs as users write them: modules, gradients and data. See test_user_programs.py."""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations as P
from user_programs import prog


@prog
def parametrized():
    l = P.weight_norm(nn.Linear(4, 4))
    s = P.spectral_norm(nn.Linear(4, 4))
    o = P.orthogonal(nn.Linear(4, 4))

    def f(x):
        return o(s(l(x))).tanh(), l.weight.norm()

    return f, lambda k: (torch.randn(2, 4),)


@prog
def accumulate_and_freeze():
    net = nn.Linear(3, 3)
    opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    def f(x, k):
        net.bias.requires_grad_(k % 3 != 1)
        (net(x).pow(2).mean() / 2).backward()
        if k % 2:
            nn.utils.clip_grad_value_(net.parameters(), 0.5)
            opt.step()
            opt.zero_grad(set_to_none=k % 4 == 1)
        return net.weight.detach().clone(), None if net.bias.grad is None else net.bias.grad.clone()

    return f, lambda k: (torch.randn(4, 3), k)


@prog
def amp_and_scaler():
    net = nn.Linear(8, 8)

    def f(x, on):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            y = net(x)
            z = y @ y.t()
        return y.dtype, z.float().sum(), torch.is_autocast_enabled("cpu")

    return f, lambda k: (torch.randn(4, 8), k % 2 == 0)


@prog
def checkpoint_rng():
    from torch.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))

    def f(x):
        x = x.clone().requires_grad_()
        y = checkpoint(net, x, use_reentrant=False).sum()
        y.backward()
        g = x.grad
        net.zero_grad()
        return y.detach(), g, torch.rand(1)

    return f, lambda k: (torch.randn(3, 4),)


@prog
def ensemble_vmap():
    models = [nn.Linear(3, 2) for _ in range(3)]
    params, bufs = torch.func.stack_module_state(models)
    base = models[0]

    def f(x):
        return torch.vmap(
            lambda p, b, x: torch.func.functional_call(base, (p, b), (x,)), in_dims=(0, 0, None)
        )(params, bufs, x)

    return f, lambda k: (torch.randn(4, 3),)


@prog
def shared_params():
    e = nn.Embedding(10, 6)
    d = nn.Linear(6, 10, bias=False)
    d.weight = e.weight

    def f(i, k):
        if k == 6:
            with torch.no_grad():
                e.weight.mul_(0.5)
        h = e(i).mean(1)
        lo = F.cross_entropy(d(h), i[:, 0])
        lo.backward()
        g = e.weight.grad.clone()
        e.weight.grad = None
        return lo.detach(), g, d.weight is e.weight

    return f, lambda k: (torch.randint(0, 10, (3, 4)), k)


@prog
def data_swaps():
    w = torch.randn(3, 3)
    st = {"w": w}

    def f(x, k):
        if k % 4 == 1:
            w.data = w.data * 2
        if k % 4 == 2:
            st["w"] = w.t()
        if k % 4 == 3:
            w.resize_(3, 3)
            st["w"] = w
        v = st["w"]
        y = x @ v
        v2 = v.detach()
        v2[0, 0] = k
        return y, w[0, 0].item(), v.is_contiguous(), w._version > 0

    return f, lambda k: (torch.randn(2, 3), k)


@prog
def dtype_device_default():
    def f(x, k):
        torch.set_default_dtype([torch.float32, torch.float64][k % 2])
        try:
            return (
                x.to(torch.get_default_dtype()) + torch.ones(2),
                torch.tensor(1.5).dtype,
                torch.arange(3.0).dtype,
            )
        finally:
            torch.set_default_dtype(torch.float32)

    return f, lambda k: (torch.randn(2), k)


@prog
def inference_and_version():
    def f(x, inf):
        with torch.inference_mode(inf):
            y = x * 2
            z = y.view(-1)
            z.add_(1)
        return y, y.is_inference(), z._version if not inf else 0

    return f, lambda k: (torch.randn(2, 2), k % 2 == 0)


@prog
def inplace_aliases_args():
    def f(a, b):
        a.add_(1)
        b.mul_(2)
        c = a + b
        a[0] = c.sum()
        return c, a is b, torch._C._is_alias_of(a, b)

    def args(k):
        x = torch.randn(4)
        return [(x, x), (x, x.view(4)), (x, torch.randn(4)), (x[:2], x[1:3])][k % 4]

    return f, args


@prog
def strides_layouts():
    conv = nn.Conv2d(3, 4, 3)

    def f(x):
        y = conv(x)
        return (
            y,
            y.stride(),
            x.is_contiguous(memory_format=torch.channels_last),
            y.permute(0, 2, 3, 1).contiguous().view(-1)[:3],
        )

    return f, lambda k: (
        torch.randn(1, 3, 6, 6).to(memory_format=[torch.contiguous_format, torch.channels_last][k % 2]),
    )


@prog
def sizes_vary():
    emb = nn.Embedding(12, 8)
    att = nn.MultiheadAttention(8, 2, batch_first=True)
    ln = nn.LayerNorm(8)

    def f(i, mask):
        h = emb(i)
        m = None if mask is None else i.eq(0)
        o, w = att(h, h, h, key_padding_mask=m, need_weights=mask is not None)
        h = ln(h + o)
        return h.mean(1), None if w is None else w.shape, h[:, -1]

    return f, lambda k: (torch.randint(1, 12, (1 + k % 3, 2 + k % 5)), [None, 1][k % 2])


@prog
def complex_fft():
    def f(x):
        s = torch.fft.rfft(x)
        p = s.abs() ** 2
        k = p.argmax(-1)
        s[..., 0] = 0
        return torch.fft.irfft(s, n=x.shape[-1]), k.tolist(), torch.view_as_real(s).sum()

    return f, lambda k: (torch.randn(2, 8 + 2 * (k % 3)),)


@prog
def masked_ops():
    def f(x, t):
        m = x > t
        s = x[m]
        y = x.masked_fill(m, 0)
        y[~m] += 1
        i = m.nonzero()
        u, inv, c = torch.unique(x.round(), return_inverse=True, return_counts=True)
        return (
            s.sum(),
            s.numel(),
            y,
            i.shape[0],
            u,
            c.tolist(),
            torch.where(m)[0],
            s.mean() if s.numel() else None,
        )

    return f, lambda k: (torch.randn(3, 3), k / 4 - 2)


@prog
def scatter_segments():
    def f(v, seg):
        n = int(seg.max()) + 1
        out = torch.zeros(n, v.shape[1]).scatter_reduce(
            0, seg[:, None].expand_as(v), v, "amax", include_self=False
        )
        cnt = torch.zeros(n).index_add(0, seg, torch.ones(len(seg)))
        so, ix = seg.sort(stable=True)
        return out, cnt, torch.split(v[ix], cnt.long().tolist())

    return f, lambda k: (torch.randn(6, 2), torch.randint(0, 2 + k % 3, (6,)))


@prog
def topp_sampling():
    def f(lg, p, k):
        lg = lg / 0.8
        v, i = lg.sort(descending=True)
        c = v.softmax(-1).cumsum(-1)
        r = c - v.softmax(-1) > p
        v = v.masked_fill(r, -float("inf"))
        if k:
            v = v[:, :k]
            i = i[:, :k]
        n = torch.multinomial(v.softmax(-1), 1)
        return i.gather(-1, n).squeeze(-1).tolist(), (~r).sum(-1)

    return f, lambda k: (torch.randn(2, 9), 0.3 + 0.05 * k, k % 4)


@prog
def beam():
    W = torch.randn(5, 5)

    def f(start, steps, width):
        beams = [([start], 0.0)]
        for _ in range(steps):
            cand = []
            for seq, sc in beams:
                lp = torch.log_softmax(W[seq[-1]], -1)
                v, i = lp.topk(width)
                cand += [(seq + [j], sc + x) for j, x in zip(i.tolist(), v.tolist())]
            beams = sorted(cand, key=lambda t: -t[1])[:width]
            if all(s[-1] == 0 for s, _ in beams):
                break
        return beams[0][0], round(beams[0][1], 4)

    return f, lambda k: (k % 5, 3, 2)


@prog
def kv_cache_class():
    class Cache:
        def __init__(s):
            s.k = s.v = None
            s.seen = 0

        def update(s, k, v):
            s.k = k if s.k is None else torch.cat([s.k, k], -2)
            s.v = v if s.v is None else torch.cat([s.v, v], -2)
            s.seen += k.shape[-2]
            return s.k, s.v

    qkv = nn.Linear(8, 24)

    def f(x, steps):
        c = Cache()
        outs = []
        for t in range(steps):
            q, k, v = qkv(x[:, t : t + 1]).chunk(3, -1)
            K, V = c.update(k, v)
            outs.append(F.scaled_dot_product_attention(q, K, V))
        return torch.cat(outs, 1), c.seen, c.k.shape

    return f, lambda k: (torch.randn(2, 6, 8), 2 + k % 4)


@prog
def persistent_cache():
    class C:
        pass

    c = C()
    c.buf = torch.zeros(2, 0, 4)
    c.log = []

    def f(x, reset):
        if reset:
            c.buf = torch.zeros(2, 0, 4)
            c.log.clear()
        c.buf = torch.cat([c.buf, x[:, None]], 1)
        c.log.append(c.buf.shape[1])
        return c.buf.mean(1), c.buf.shape, c.log[-1], len(c.log)

    return f, lambda k: (torch.randn(2, 4), k % 6 == 5)


@prog
def gru_bidir():
    g = nn.GRU(4, 5, 2, bidirectional=True, batch_first=True, dropout=0.2)

    def f(x, h, tr):
        g.train(tr)
        o, n = g(x, h)
        return o, n

    return f, lambda k: (torch.randn(2, 3 + k % 3, 4), None if k % 2 else torch.zeros(4, 2, 5), k % 3 == 0)


@prog
def transformer_layer():
    l = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    l.eval()

    def f(x, m):
        with torch.no_grad():
            return l(x, src_key_padding_mask=m)

    return f, lambda k: (
        torch.randn(2, 4, 8),
        None if k % 2 else torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1]]).bool(),
    )


@prog
def lbfgs_closure():
    p = nn.Parameter(torch.tensor([2.0, -1.0]))
    opt = torch.optim.LBFGS([p], lr=0.5, max_iter=3)

    def f(t):
        def closure():
            opt.zero_grad()
            l = ((p - t) ** 2).sum()
            l.backward()
            return l

        return opt.step(closure).detach(), p.detach().clone()

    return f, lambda k: (torch.tensor([1.0, 1.0]) * k,)


@prog
def double_backward():
    n = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))

    def f(x):
        x = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(n(x).sum(), x, create_graph=True)
        pen = ((g.norm(2, 1) - 1) ** 2).mean()
        pen.backward()
        r = n[0].weight.grad.clone()
        n.zero_grad()
        return pen.detach(), r

    return f, lambda k: (torch.randn(4, 3),)
