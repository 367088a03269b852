"""torch inside a compiled function: operators, views, in-place, modes, random numbers, data-dependent control flow."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from harness import Case, Suite, check, check_captured, floats
from torch import nn
from torch.utils.checkpoint import checkpoint

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


# --- operators, views, indexing ---


@case((3, 4), (4, 5))
def operators(x, w):
    y = x @ w
    return -y, +y, abs(y), y**2, 2**y, 1 / y, 3 - y, y // 1, y % 2, y > 0, (y > 0) & (y < 1), ~(y > 0), y == y


@case((3, 4), grad=True)
def methods_and_functions(x):
    y = F.relu(x).softmax(-1).log().clamp(min=-5)
    return torch.where(y > -1, y, x).sum(dim=1, keepdim=True), torch.nn.functional.gelu(x).mean()


@case()
def reversed_tensors(x):
    class Countdown:
        def __init__(self, values):
            self.values = values

        def __reversed__(self):
            yield from [v * 2 for v in self.values[::-1]]

    class Odd:
        def __reversed__(self):
            return 7

    rows = [row.sum() for row in reversed(x)]
    zero = torch.tensor(3.0)
    values = list(reversed(Countdown([1, 2, 3])))
    return rows, torch.stack(list(reversed(x))), reversed(zero) is zero, values, reversed(Odd()), reversed(x)


@case()
def views_share_storage(x):
    y = x + 0
    t = y.t()
    row = y[0]
    flat = y.reshape(-1)
    row.add_(10)
    return y, t, flat, y.view(4, 3), y.unsqueeze(0), y.expand(2, 3, 4), y.permute(1, 0), y.narrow(0, 1, 2)


@case((6, 4))
def splits(x):
    a, b, c = x.chunk(3)
    parts = torch.split(x, [1, 2, 3])
    rows = x.unbind(0)
    return (
        a + b + c,
        [p.sum() for p in parts],
        rows[0],
        torch.tensor_split(x, 2),
        torch.meshgrid(x[0], x[1], indexing="ij"),
    )


@case((4, 5))
def indexing_forms(x):
    index = torch.tensor([0, 2])
    mask = torch.tensor([True, False, True, False])
    return (
        x[0],
        x[-1, 2],
        x[1:3, ::2],
        x[..., 1],
        x[None],
        x[index],
        x[mask],
        x[:, index],
        x[index, index],
        x[[0, 1]],
        x[(1, 2)],
        x[True],
        x[1:1],
    )


@case((4, 5))
def index_assignment(x):
    y = x.clone()
    y[0] = 1
    y[1, 2] = -1.0
    y[2] = torch.arange(5.0)
    y[y > 1] = 0
    y[:, [0, 1]] = 9
    y[3][0] = 5
    y[torch.tensor([0, 1])] += 1
    return y


@case((5, 3))
def gather_scatter(x):
    index = torch.tensor([[0, 1, 2], [2, 1, 0]])
    base = torch.zeros(5, 3)
    return (
        x.gather(0, index),
        base.scatter(0, index, x),
        base.index_add(0, torch.tensor([0, 0, 1, 2, 3]), x),
        x.take_along_dim(index, 0),
        base.scatter_reduce(0, index, x[:2], "amax"),
    )


@case()
def in_place_chain(x):
    y = x.clone()
    y.add_(1).mul_(2).clamp_(0, 5)
    y[:, 0].zero_()
    y.t_()
    return y


@case()
def dtype_and_device_conversions(x):
    return (
        x.to(torch.float64),
        x.half().float(),
        x.long(),
        x.bool(),
        x.to("cpu"),
        x.to(torch.ones(1)),
        x.double().type(torch.int32),
    )


@case()
def properties(x):
    return (
        x.shape,
        x.dtype,
        x.device,
        x.ndim,
        x.requires_grad,
        x.is_leaf,
        x.T.shape,
        x.size(-1),
        x.stride(),
        x.numel(),
        x.is_contiguous(),
        x.layout,
        len(x),
        x.element_size(),
        x.mT,
        x.data_ptr() == x.data_ptr(),
    )


@case()
def shape_arithmetic(x):
    b, c = x.shape
    half = c // 2
    y = x.view(b, half, c // half).transpose(1, 2).reshape(b, -1)
    return (
        y * math.sqrt(c),
        torch.zeros(b * 2, c + 1),
        x.new_ones(b),
        torch.arange(c),
        [i for i in range(x.size(0))],
    )


@case()
def creation(x):
    return (
        torch.zeros(2, 3),
        torch.ones_like(x),
        torch.full((2,), 3.5),
        torch.arange(0, 1, 0.25),
        torch.linspace(0, 1, 5),
        torch.eye(3),
        torch.empty(0),
        torch.tril(torch.ones(3, 3)),
        torch.zeros((), dtype=torch.int64),
    )


@case()
def torch_tensor_from_data(x):
    scale = torch.tensor(2.0)
    table = torch.tensor([[1, 2], [3, 4]])
    made = torch.tensor([x.shape[0], x.shape[1]])
    return (
        x * scale,
        table,
        made,
        torch.as_tensor([1.5]),
        torch.tensor([1, 2], dtype=torch.float64),
        torch.tensor(True),
    )


@case(traces=None, breaks=None)
def torch_tensor_from_items(x):
    return torch.tensor([x.sum().item(), 1.0]), torch.stack([x.sum(), x.mean()])


@case()
def multiple_outputs(x):
    values, indices = x.max(dim=1)
    top = x.topk(2)
    q, r = torch.linalg.qr(x)
    return values, indices, top.values, torch.sort(x).indices, (q @ r), torch.var_mean(x), x.min(0)


@case((2, 3, 4), (2, 4, 5))
def matmuls_and_einsum(x, y):
    return (
        torch.bmm(x, y),
        torch.einsum("bij,bjk->bik", x, y),
        x @ y,
        torch.matmul(x, y[0]),
        torch.tensordot(x, y[0], 1),
    )


@case((2, 3, 8, 8))
def convolution_and_pooling(x):
    weight = torch.ones(4, 3, 3, 3)
    y = F.conv2d(x, weight, padding=1)
    return F.max_pool2d(y, 2), F.avg_pool2d(y, 2), F.interpolate(y, scale_factor=2), F.pad(y, (1, 1))


@case((2, 3, 8), (2, 3, 8), (2, 3, 8), grad=True)
def attention(q, k, v):
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    plain = (q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))).masked_fill(~mask, float("-inf")).softmax(
        -1
    ) @ v
    return plain, F.scaled_dot_product_attention(q, k, v, is_causal=True)


@case()
def complex_and_bitwise(x):
    c = torch.complex(x, x + 1)
    bits = x.to(torch.int32)
    return c * c.conj(), c.real, torch.view_as_real(c), bits & 3, bits << 1, torch.fft.fft(x)


# --- modes and random numbers ---


@case(grad=True)
def no_grad_blocks(x):
    y = x * 2
    with torch.no_grad():
        z = y * 3
        with torch.enable_grad():
            w = x * 4
    return y, z, w, torch.is_grad_enabled()


@case(grad=True)
def no_grad_decorator(x):
    @torch.no_grad()
    def f(v):
        return v * 2

    return f(x), x.detach() + 1, x.data * 2


@case(grad=True)
def set_grad_enabled_function(x):
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y, x * 3


@case()
def inference_mode(x):
    with torch.inference_mode():
        y = x * 2
        return y.is_inference(), y.sum().clone()


@case((3, 4), (4, 4), grad=True)
def autocast(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        z = y.float() + 1
    return y, z, x @ w


@case()
def default_dtype_switch(x):
    torch.set_default_dtype(torch.float64)
    try:
        return torch.ones(2), x.double() + torch.zeros(4)
    finally:
        torch.set_default_dtype(torch.float32)


@case()
def dropout_and_random(x):
    return (
        F.dropout(x, 0.5, training=True),
        torch.rand(3),
        torch.randn_like(x),
        torch.randperm(5),
        torch.bernoulli(x.sigmoid()),
    )


@case()
def manual_seed_inside(x):
    torch.manual_seed(7)
    a = torch.rand(2)
    torch.manual_seed(7)
    return a, torch.rand(2), x + a[0]


@case(breaks=None)
def generator_object(x):
    g = torch.Generator().manual_seed(3)
    return torch.rand(3, generator=g), x + torch.randint(0, 5, (4,), generator=g)


@case(breaks=None)
def fork_rng(x):
    with torch.random.fork_rng():
        a = torch.rand(2)
    return a, torch.rand(2), x


# --- values that are only known at run time ---


@case(calls=6, traces=None, breaks=None)
def tensor_if(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


@case(calls=6, traces=None, breaks=None)
def tensor_if_in_loop_and_call(x):
    def step(v, i):
        if v.mean() > 0.1 * i:
            return v - 0.3
        return v + 0.2

    for i in range(3):
        with torch.no_grad():
            try:
                x = step(x, i)
            finally:
                x = x * 1.5
    return x


@case(calls=6, traces=None, breaks=None)
def tensor_while(x):
    n = 0
    while x.norm() < 20:
        x = x * 1.7 + 0.1
        n += 1
    return x, n


@case(calls=6, traces=None, breaks=None)
def tensor_if_with_effects(x):
    log = ["start"]
    print("before")
    if (x > 1.2).any():
        log.append("big")
        print("big")
        y = x.clamp(max=1.2)
    else:
        y = x
    print("after")
    return y, log


@case(traces=None, breaks=None)
def tensor_assert(x):
    assert torch.isfinite(x).all(), "not finite"
    assert x.shape[0] == 3
    return x + 1


@case(calls=6, traces=None, breaks=None)
def tensor_boolean_logic(x):
    a, b = x[0, 0], x[1, 1]
    return max(a, b), min(a, b), a > 0 and b > 0, not (a > 0), [v for v in x[0] if v > 0]


@case(traces=None, breaks=None)
def item_in_arithmetic(x):
    s = x.sum().item()
    return x * s, s + 1, f"{s:.3f}"


@case(traces=None, breaks=None)
def item_decides(x):
    n = int(x.abs().sum().item()) % 4 + 1
    return x[:n], torch.zeros(n), list(range(n))


@case(traces=None, breaks=None)
def scalars_from_tensors(x):
    return (
        float(x[0, 0]),
        int(x[0, 1] * 10),
        bool(x[1, 1] > 0),
        x.tolist(),
        x[0].numpy().tolist(),
        complex(x[0, 0]),
    )


@case(calls=6, breaks=None)
def nonzero_and_masks(x):
    idx = (x > 0).nonzero()
    picked = x[x > 0]
    rows, cols = torch.where(x > 0.5)
    return idx, picked * 2, rows.numel(), torch.masked_select(x, x < 0), picked.sum(), cols


@case(calls=6, breaks=None)
def unique_and_counts(x):
    ints = (x * 2).long()
    values, counts = ints.unique(return_counts=True)
    return values, counts, torch.bincount(ints.abs().flatten()), ints.flatten().repeat_interleave(2)


@case(calls=6, traces=None, breaks=None)
def loop_to_data_dependent_bound(x):
    n = int((x > 0).sum())
    total = torch.zeros(4)
    for i in range(n):
        total = total + i
    return total, n


@case(calls=6, traces=None, breaks=None)
def mixture_of_experts_routing(x):
    gate = x.softmax(-1).argmax(-1)
    out = torch.zeros_like(x)
    for expert in range(4):
        rows = (gate == expert).nonzero().flatten()
        if rows.numel() == 0:
            continue
        out[rows] += x[rows] * (expert + 1)
    return out


@case(calls=6, inputs=lambda call: floats((2 + call % 3, 4))(call), traces=None)
def changing_sizes(x):
    return x.sum(0) * x.shape[0], x.reshape(-1), torch.zeros(x.shape[0])


# --- numpy ---


@case(breaks=None)
def numpy_round_trip(x):
    a = x.numpy()
    b = np.sin(a) + 1
    return torch.from_numpy(b) * 2, a.shape, float(np.float64(2.5)) * x


@case(breaks=None)
def numpy_shares_memory(x):
    y = x.clone()
    a = y.numpy()
    a[0] = 7
    z = torch.from_numpy(a)
    z[1] = 8
    return y, z.data_ptr() == y.data_ptr()


@case(breaks=None)
def numpy_scalars(x):
    return x * np.float32(2), x + np.int64(3), np.asarray([1, 2]).sum() + x


# --- autograd ---


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad * ctx.k, None


@case(grad=True, breaks=None)
def autograd_function(x):
    return Square.apply(x, 3.0).sum()


@case(breaks=None)
def backward_inside(x):
    w = torch.ones(4, requires_grad=True)
    loss = (x * w).sum()
    loss.backward()
    return w.grad, loss.detach()


@case(grad=True, breaks=None)
def autograd_grad_inside(x):
    y = (x**3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return g, (g * 2).sum()


@case(grad=True, breaks=None)
def tensor_hooks(x):
    seen = []
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(g.shape))
    return y.sum(), seen


@case((3, 4), (4, 4), grad=True, breaks=None)
def checkpointed(x, w):
    def block(v, weight):
        return torch.tanh(v @ weight)

    return checkpoint(block, checkpoint(block, x, w, use_reentrant=False), w, use_reentrant=False)


@case(grad=True)
def requires_grad_changes(x):
    y = torch.ones(4)
    y.requires_grad_()
    z = (x * y).sum()
    return z, y, x.detach().requires_grad


@case((5,), breaks=None)
def functorch_transforms(x):
    doubled = torch.vmap(lambda v: v * 2 + 1)(x)
    slope = torch.func.grad(lambda v: (v**2).sum())(x)
    return doubled, slope, torch.func.jacrev(torch.sin)(x)


# --- modules ---


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.norm = nn.LayerNorm(4)
        self.bn = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.3)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        self.seen += 1
        return self.drop(self.bn(self.norm(x)))


@factory(grad=True)
def make_module_in_training():
    m = Block().train()
    return m.__call__, m


@factory(grad=True)
def make_module_in_eval():
    m = Block().eval()
    return m.__call__, m


@factory()
def make_module_hooks():
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    nn.init.ones_(m[0].weight), nn.init.zeros_(m[0].bias)
    log = []
    m[0].register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
    m[1].register_forward_hook(lambda mod, args, out: out + 1)
    m.register_forward_hook(lambda mod, args, out: log.append(tuple(out.shape)))
    return m.__call__, log


@factory(breaks=None)
def make_functional_call():
    m = nn.Linear(4, 2)
    nn.init.ones_(m.weight), nn.init.zeros_(m.bias)

    def f(x):
        params = {"weight": m.weight * 2, "bias": m.bias + 1}
        return torch.func.functional_call(m, params, (x,))

    return f


@factory(grad=True)
def make_containers():
    torch.manual_seed(1)
    m = nn.Sequential(
        nn.Linear(4, 8),
        nn.GELU(),
        nn.Sequential(nn.Linear(8, 8), nn.Tanh()),
        nn.Identity(),
        nn.Softmax(dim=-1),
    )
    table = nn.ModuleDict({"a": nn.Linear(8, 2), "b": nn.Linear(8, 3)})
    scales = nn.ParameterList([nn.Parameter(torch.ones(2) * 3)])

    def f(x):
        y = m(x)
        return {name: layer(y) for name, layer in table.items()}, table["a"](y) * scales[0]

    return f, m, table, scales


@factory((2, 5, 4), grad=True, breaks=None)
def make_recurrent():
    torch.manual_seed(1)
    rnn = nn.LSTM(4, 6, batch_first=True)
    cell = nn.GRUCell(4, 6)

    def f(x):
        out, (h, c) = rnn(x)
        state = torch.zeros(2, 6)
        for t in range(x.shape[1]):
            state = cell(x[:, t], state)
        return out, h, c, state

    return f, rnn


@factory((2, 5, 8), grad=True)
def make_transformer_layer():
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return layer.__call__, layer


@factory(inputs=lambda call: (torch.tensor([[1, 2], [3, call]]),))
def make_embedding():
    torch.manual_seed(1)
    table = nn.Embedding(8, 4, padding_idx=0)
    bag = nn.EmbeddingBag(8, 4)
    return (lambda ids: (table(ids), bag(ids))), table


@factory(breaks=1, traces=None)  # backward(); zero_grad() is a step that is none
def make_training_step():
    torch.manual_seed(1)
    m = nn.Linear(4, 2)
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        opt.zero_grad()
        loss = F.mse_loss(m(x), torch.ones(3, 2))
        loss.backward()
        opt.step()
        return loss.detach()

    return step, m


# --- custom operators and subclasses ---


@torch.library.custom_op("kintsugi_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, k: float) -> torch.Tensor:
    return x * k + 1


@scaled.register_fake
def _(x, k):
    return torch.empty_like(x)


@torch.library.custom_op("kintsugi_tests::bump_", mutates_args=("x",))
def bump_(x: torch.Tensor) -> None:
    x.add_(1)


@factory(breaks=None)
def make_custom_operators():
    # The first call in a process imports modules of torch's, and with them classes that are registered with ABCs.
    bump_(scaled(torch.ones(2), 1.0))

    def custom_operators(x):
        y = scaled(x, 3.0)
        bump_(y)
        return y, torch.ops.kintsugi_tests.scaled(x, 2.0)

    return custom_operators, None


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


@case(breaks=None)
def tensor_subclass(x):
    t = x.as_subclass(Tagged)
    return (t + 1).sum(), isinstance(t * 2, Tagged), x + 1


@case(breaks=None)
def sparse_and_quantized(x):
    s = x.relu().to_sparse()
    return torch.sparse.mm(s, torch.ones(4, 2)), s.to_dense()


@case(breaks=None)
def storage_and_set(x):
    y = torch.empty(0)
    y.set_(x.clone())
    x.data = x.data + 1
    return y, x * 2


if hasattr(torch.ops.aten, "shallow_copy_data_"):  # of torch 2.14

    @case((3,), (2, 2), breaks=None)
    def data_taken_over(x, y):
        z = x.clone()
        torch.ops.aten.shallow_copy_data_(z, y)
        z.add_(1)
        return z, z.shape, y, y.data_ptr() == z.data_ptr(), x


# Without CUDA in the build, a class in Python that raises has the name of the C function.
@case()
def asked_whether_a_stream_is_captured(x):
    try:
        capturing = torch.cuda.is_current_stream_capturing()
    except Exception:  # there is no device
        return x * 3
    return x + 1 if capturing else x * 2


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)
