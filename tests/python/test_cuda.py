"""Programs on a CUDA device: replayed, as shipped and natively they do what eager mode does. Skipped without one.

`KINTSUGI_TEST_DEVICE=cuda` moves the inputs of the other tests' cases there as well (tests/python/harness.py).
"""

from __future__ import annotations

import contextlib
import copy
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from harness import Suite, check
from torch import nn

import kintsugi
from bench import compare

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CALLS = 6
WAYS: dict[str, dict[str, Any]] = {
    "replay": {"backend": "eager"},
    "native": {"backend": "native", "options": {"sync": True}},
    "shipped": {},
}
suite = Suite()


def tensors(*shapes: tuple[int, ...], grad: bool = False, dtype: torch.dtype = torch.float32) -> Any:
    """Inputs of a case, on the device."""

    def make(call: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(100 + call)
        made = [torch.randn(shape, generator=generator).to("cuda", dtype) for shape in shapes]
        return tuple(t.requires_grad_() if grad else t for t in made)

    return make


# Values ----------------------------------------------------------------------------------------------------------


@suite.case(inputs=tensors((16, 32)), traces=None)
def branches_on_a_sum(x: torch.Tensor) -> Any:
    if x.sum() > 0:
        return x * 2, x.mean().item()
    return x - 1, x.max().item()


@suite.case(inputs=tensors((16, 32)))
def goes_to_the_host_and_back(x: torch.Tensor) -> Any:
    host = x.cpu()
    host += 1
    back = host.to("cuda", non_blocking=True)
    return host, back, back + x, x.to("cpu", torch.float64), x.device, x.is_cuda, x.get_device()


@suite.case(inputs=tensors((16, 32)))
def mixes_host_scalars(x: torch.Tensor) -> Any:
    scale = torch.tensor(2.5)
    whole = torch.tensor(3)
    return x * scale, x + whole, torch.where(x > 0, x, scale), x.add_(scale.item())


@suite.case(inputs=tensors((16, 32)), breaks=None)
def operands_on_two_devices(x: torch.Tensor) -> Any:
    y = x + 1
    return y @ torch.ones(32, 4)


@suite.case(inputs=tensors((8, 8)))
def factories(x: torch.Tensor) -> Any:
    with torch.device("cuda"):
        a = torch.zeros(3)
        b = torch.arange(4)
    c = torch.full((2, 2), 7.0, device=x.device)
    return a, b, c, torch.empty_like(x).fill_(1), x.new_ones(2), torch.tensor([1.0, 2.0], device="cuda:0")


@suite.case(inputs=tensors((8, 8)))
def random_numbers(x: torch.Tensor) -> Any:
    a = torch.randn_like(x)
    b = F.dropout(x, 0.5, training=True)
    c = torch.rand(4, device="cuda")
    x.uniform_()
    return a, b, c, torch.bernoulli(torch.full((5,), 0.5, device="cuda")), torch.randperm(6, device="cuda")


@suite.case(inputs=tensors((8, 8)), breaks=None)
def own_generator(x: torch.Tensor) -> Any:
    generator = torch.Generator(device="cuda").manual_seed(7)
    return torch.randn(3, generator=generator, device="cuda") + x[0, :3], generator.initial_seed()


@suite.case(inputs=tensors((4, 8)), breaks=None)
def seeds(x: torch.Tensor) -> Any:
    torch.cuda.manual_seed(3)
    a = torch.rand_like(x)
    with torch.random.fork_rng(devices=[0]):
        torch.manual_seed(4)
        b = torch.rand_like(x)
    return a, b, torch.rand_like(x)


@suite.case(inputs=tensors((4, 8)))
def indices(x: torch.Tensor) -> Any:
    picked = x[x > 0]
    where = torch.nonzero(x)
    x[0] = 3
    x[:, 1] += 2
    values, order = x.topk(2)
    return picked, where, x, values, order, x.unique(), x[[0, 2]], x.argmax().item()


@suite.case(inputs=tensors((4, 8)))
def printed(x: torch.Tensor) -> Any:
    print("sum", x.sum().item() > 0, x.device, tuple(x.shape))
    print(x[0, :2])
    return x.tolist(), float(x[0, 0]), bool(x[0, 0] > 0), f"{x[0, 0]:.3f}"


@suite.case(inputs=tensors((4, 8)))
def arrays(x: torch.Tensor) -> Any:
    array = x.cpu().numpy()
    array *= 2
    return torch.from_numpy(array).cuda() + x, array.sum() > 0


@suite.case(inputs=tensors((4, 8)))
def numpy_of_the_device(x: torch.Tensor) -> Any:
    y = x * 2
    try:
        return y.numpy()
    except TypeError as error:
        return str(error), y


# Streams, events, flags ------------------------------------------------------------------------------------------


@suite.case(inputs=tensors((64, 64)), breaks=None)
def streams(x: torch.Tensor) -> Any:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x @ x
        inside = torch.cuda.current_stream() == side
    torch.cuda.current_stream().wait_stream(side)
    y.record_stream(torch.cuda.current_stream())
    return y + 1, inside, torch.cuda.current_stream() == torch.cuda.default_stream()


@suite.case(inputs=tensors((64, 64)), breaks=None)
def events(x: torch.Tensor) -> Any:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    y = x @ x
    end.record()
    torch.cuda.synchronize()
    return y, start.elapsed_time(end) >= 0, end.query()


@suite.case(inputs=tensors((64, 64)), breaks=None)
def other_threads_of_the_device(x: torch.Tensor) -> Any:
    with torch.cuda.device(0):
        y = x * 2
    return y, torch.cuda.current_device(), torch.cuda.device_count() >= 1, torch.cuda.is_available()


@suite.case(inputs=tensors((64, 64)), breaks=None)
def precision_flags(x: torch.Tensor) -> Any:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        y = x @ x
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return y, x @ x, before


@suite.case(inputs=tensors((64, 64)), breaks=None)
def ranges(x: torch.Tensor) -> Any:
    with torch.cuda.nvtx.range("a"):
        y = x * 2
    return y


@suite.case(inputs=tensors((32, 64), (64, 16)))
def autocast(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.autocast("cuda", torch.bfloat16):
        y = x @ w
        z = y.softmax(-1)
        with torch.autocast("cuda", enabled=False):
            n = y.float() * 2
    return y, z, n, torch.is_autocast_enabled("cuda")


@suite.case(inputs=tensors((2, 4, 16, 32), (2, 4, 16, 32), (2, 4, 16, 32), dtype=torch.float16), breaks=None)
def attention_by_kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    with sdpa_kernel(SDPBackend.MATH):
        b = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return a, b, F.scaled_dot_product_attention(q, k, v)


@suite.case(inputs=tensors((2, 3, 16, 16), (8, 3, 3, 3)))
def channels_last(x: torch.Tensor, w: torch.Tensor) -> Any:
    x = x.to(memory_format=torch.channels_last)
    y = F.conv2d(x, w, padding=1)
    return y, F.max_pool2d(y, 2), F.interpolate(y, scale_factor=2), y.permute(0, 2, 3, 1).contiguous()


@suite.case(inputs=tensors((16, 8), grad=True), breaks=None)
def gradients_inside(x: torch.Tensor) -> Any:
    y = (x.sin() * x).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return y, g, (g * g).sum()


@suite.case(inputs=tensors((16, 8), (8, 8), (8,), grad=True))
def differentiated(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    h = F.gelu(F.linear(x, w, b))
    return F.layer_norm(h, (8,)), (h * x).relu()


@suite.case(inputs=tensors((16, 8)), breaks=None)
def out_of_memory(x: torch.Tensor) -> Any:
    y = x * 2
    try:
        torch.empty(1 << 48, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        return y, type(error).__name__
    return y


@suite.case(inputs=tensors((16, 8)))
def raises(x: torch.Tensor) -> Any:
    return x * 2 @ x


@suite.case(inputs=tensors((16, 8), dtype=torch.float16))
def half(x: torch.Tensor) -> Any:
    return x.softmax(-1), (x.float() * 3).half(), x @ x.T, x.sum(0), F.rms_norm(x, (8,))


@suite.case(inputs=tensors((16, 8)))
def sparse(x: torch.Tensor) -> Any:
    rows = torch.tensor([[0, 1], [1, 0]], device="cuda")
    with torch.sparse.check_sparse_tensor_invariants(
        False
    ):  # without it torch warns once in the life of a process
        s = torch.sparse_coo_tensor(rows, torch.ones(2, device="cuda"), (16, 16))
    return torch.sparse.mm(s, x), s.to_dense()


@suite.factory(inputs=tensors((16, 8)))
def make_counts() -> Any:
    state = {"n": torch.zeros(8, device="cuda"), "steps": 0, "seen": []}

    def step(x: torch.Tensor) -> torch.Tensor:
        state["n"] += x.sum(0)
        state["steps"] += 1
        state["seen"].append(state["n"].clone())
        return state["n"] / state["steps"]

    return step, state


@suite.parametrize()
@pytest.mark.parametrize("way", WAYS)
def test_like_eager(case: Any, way: str) -> None:
    torch.zeros(1, device="cuda")
    check(case, lambda fn: kintsugi.compile(fn, **WAYS[way]), close=way != "replay")
    kintsugi.wait()


# Modules ---------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.heads = nn.MultiheadAttention(32, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 32))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = self.norm(x)
        x = x + self.heads(y, y, y, need_weights=False)[0]
        return x + self.mlp(x)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).mean((2, 3))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(16, 16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, (h, c) = self.cell(x)
        return y[:, -1] + h[-1] * c[-1]


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "block": (lambda: nn.Sequential(Block(), Block()), (4, 10, 32)),
    "images": (Images, (4, 3, 16, 16)),
    "recurrent": (Recurrent, (4, 7, 16)),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3),
    "fused": lambda p: torch.optim.AdamW(p, 1e-3, fused=True),
    "capturable": lambda p: torch.optim.AdamW(p, 1e-3, capturable=True),
}


@contextlib.contextmanager
def exact() -> Iterator[None]:
    """The same kernels each time."""
    flags = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = flags


def train(network: str, optimizer: str, wrap: Callable[[Any], Any], scaled: bool, whole: bool) -> Any:
    make, shape = NETWORKS[network]
    torch.manual_seed(0)
    net = make().cuda()
    step_of = OPTIMIZERS[optimizer](net.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=scaled)
    losses = []
    called = net if whole else wrap(net)

    def step(x: torch.Tensor) -> torch.Tensor:
        step_of.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16, enabled=scaled):
            loss = called(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(step_of)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(step_of)
        scaler.update()
        return loss

    run = wrap(step) if whole else step
    for call in range(CALLS):
        torch.manual_seed(call)
        losses.append(run(torch.randn(shape, device="cuda")).detach())
    net.eval()
    with torch.no_grad():
        losses.append(called(torch.ones(shape, device="cuda")))
    return losses, dict(net.state_dict()), [p.grad for p in net.parameters()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("whole", [False, True], ids=["model", "step"])
@pytest.mark.parametrize("scaled", [False, True], ids=["full", "scaled"])
@pytest.mark.parametrize("network", NETWORKS)
def test_training(network: str, scaled: bool, whole: bool, way: str) -> None:
    with exact():
        expected = train(network, "adamw", lambda f: f, scaled, whole)
        found = train(network, "adamw", lambda f: kintsugi.compile(f, **WAYS[way]), scaled, whole)
    assert not compare.differences(expected, found, tolerance=0.0 if way == "replay" else 1e-4)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers(optimizer: str, way: str) -> None:
    with exact():
        expected = train("block", optimizer, lambda f: f, False, True)
        found = train("block", optimizer, lambda f: kintsugi.compile(f, **WAYS[way]), False, True)
    assert not compare.differences(expected, found, tolerance=0.0 if way == "replay" else 1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_moves_between_devices(way: str) -> None:
    """The same module and function for inputs here and there, by turns: no code of one runs for the other."""
    net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)).eval()
    compiled = kintsugi.compile(net, **WAYS[way])
    plain = copy.deepcopy(net)
    x = torch.randn(4, 8)
    with torch.no_grad():
        for turn in range(8):
            device = "cuda" if turn % 4 >= 2 else "cpu"
            net.to(device), plain.to(device)
            expected, found = plain(x.to(device)), compiled(x.to(device))
            assert found.device == expected.device
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
            kintsugi.wait()
    fn = kintsugi.compile(lambda a, b: (a * b + 1).relu().sum(-1), **WAYS[way])
    for turn in range(8):
        device = "cuda" if turn % 2 else "cpu"
        a, b = x.to(device), x.to(device) + 1
        torch.testing.assert_close(fn(a, b), (a * b + 1).relu().sum(-1), rtol=1e-5, atol=1e-5)
        kintsugi.wait()


@pytest.mark.parametrize("way", WAYS)
def test_memory_like_eager(way: str) -> None:
    """Peak and what is left are eager mode's: intermediate tensors go where eager mode drops them."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = (x * 1.01).relu() + 0.1
        return x.sum()

    compiled = kintsugi.compile(chain, **WAYS[way])
    x = torch.randn(1 << 20, device="cuda")
    for _ in range(4):
        compiled(x)
        kintsugi.wait()

    def peak(fn: Callable[..., Any]) -> tuple[int, int]:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            fn(x)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before

    eager, mine = peak(chain), peak(compiled)
    assert mine[1] <= eager[1] and mine[0] <= eager[0], (eager, mine)


@pytest.mark.parametrize("way", WAYS)
def test_training_memory_like_eager(way: str) -> None:
    def measure(wrap: Callable[[Any], Any]) -> tuple[int, int]:
        torch.manual_seed(0)
        net = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(8)]).cuda()
        called = wrap(net)
        x = torch.randn(512, 256, device="cuda")
        for _ in range(4):
            called(x).sum().backward()
            net.zero_grad()
            kintsugi.wait()
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in range(2):
            called(x).sum().backward()
            net.zero_grad()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before

    eager, mine = measure(lambda f: f), measure(lambda f: kintsugi.compile(f, **WAYS[way]))
    assert mine[1] <= eager[1] and mine[0] <= eager[0] * 1.02, (eager, mine)


# Graphs, kernels, threads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("warm", [0, 4])
def test_cuda_graph_around_a_call(way: str, warm: int) -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu() * 0.5

    compiled = kintsugi.compile(body, **WAYS[way])
    x = torch.randn(32, 32, device="cuda")
    body(x), torch.cuda.synchronize()  # the libraries' workspaces
    for _ in range(warm):
        compiled(x)
    kintsugi.wait()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        body(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = compiled(x)
    for seed in range(3):
        torch.manual_seed(seed)
        x.copy_(torch.randn(32, 32, device="cuda"))
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(out, body(x))


@pytest.mark.parametrize("settings", [
    {"backend": "cudagraphs"},
    {"backend": "inductor"},
    {"backend": "inductor", "mode": "reduce-overhead"},
    {"backend": "aot_eager"},
    {"mode": "reduce-overhead"},
    {"mode": "max-autotune-no-cudagraphs"},
], ids=str)  # fmt: skip
def test_backends(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)).cuda().eval()
    compiled = kintsugi.compile(net, **settings)
    with torch.no_grad():
        for call in range(5):
            x = torch.randn(8, 16, device="cuda")
            torch.testing.assert_close(compiled(x).clone(), net(x), rtol=1e-4, atol=1e-4)
            kintsugi.wait()


@pytest.mark.parametrize("way", WAYS)
def test_triton_kernel(way: str) -> None:
    triton = pytest.importorskip("triton")
    import triton_kernels_for_tests as kernels

    def body(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernels.add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
        return out * 2

    compiled = kintsugi.compile(body, **WAYS[way])
    for call in range(CALLS):
        x, y = torch.randn(100 + call // 3, device="cuda"), torch.randn(100 + call // 3, device="cuda")
        torch.testing.assert_close(compiled(x, y), (x + y) * 2)


@pytest.mark.parametrize("way", WAYS)
def test_threads_with_streams(way: str) -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = torch.tanh(x @ x) + 0.1
        return x

    compiled = kintsugi.compile(body, **WAYS[way])
    wrong: list[Any] = []

    def work(seed: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            generator = torch.Generator(device="cuda").manual_seed(seed)
            for _ in range(20):
                x = torch.randn(16, 16, device="cuda", generator=generator)
                if not torch.allclose(compiled(x), body(x), rtol=1e-4, atol=1e-4):
                    wrong.append(seed)
            if torch.cuda.current_stream() != stream:
                wrong.append("stream")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_first_use_of_the_device_in_a_compiled_call() -> None:
    import subprocess
    import sys

    code = (
        "import torch, kintsugi\n"
        "f = kintsugi.compile(lambda x: x.cuda() * 2 + torch.rand(3, device='cuda').sum() * 0)\n"
        "print([f(torch.ones(3) * i).tolist() for i in range(4)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([[2.0 * i] * 3 for i in range(4)])


@pytest.mark.parametrize("way", WAYS)
def test_dynamic_sizes(way: str) -> None:
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    compiled = kintsugi.compile(net, dynamic=True, **WAYS[way])
    for rows in (3, 5, 8, 13, 1, 0, 7):
        x = torch.randn(rows, 16, device="cuda")
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-4)
