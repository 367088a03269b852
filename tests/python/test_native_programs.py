"""backend="native" on programs: whole models, views, mutation, grad modes, threads, fork, background, caches."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from native_harness import assert_same, check, in_threads, native

import kintsugi


class Block(torch.nn.Module):
    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        attended = F.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v
        x = x + self.dropout(self.out(attended.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 64)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embed.weight.T


class Convolutions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, padding=1)
        self.norm1, self.norm2 = torch.nn.BatchNorm2d(8), torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm1(self.first(x)), inplace=True)
        x = x + F.relu(self.norm2(self.second(x)), inplace=True)
        x = F.max_pool2d(x, 2)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def test_transformer_shares_kernels_between_blocks() -> None:
    model = Small().eval()
    before = kintsugi.cache_info()
    runner = check(model, torch.randint(50, (2, 12)))
    after = kintsugi.cache_info()
    assert runner._kintsugi_compiled.stats()["native_refused"] == 0
    assert after.reused > before.reused


def test_convolutions() -> None:
    check(Convolutions().eval(), torch.randn(2, 3, 8, 8))


def test_parameters_may_change() -> None:
    model = Block().eval()
    runner = check(model, torch.randn(2, 5, 64))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.5)
        x = torch.randn(2, 5, 64)
        assert_same(runner(x), model(x))


def test_views_stay_views() -> None:
    x = torch.randn(4, 6)
    check(lambda t: ((t + 1).t(), t.t(), t[1:], t * 2), x)
    check(lambda t: (t.view(24), t.reshape(2, 12) + 1), x)
    check(lambda t: (t * 2).unsqueeze(0).expand(3, 4, 6), x)
    check(lambda t: (t * 2).chunk(2, 1), x)

    def both(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = t.exp() + 1
        return y, y[0]

    check(both, x)
    check(lambda t: (t + 1, t + 1), x)
    check(lambda t: t.clone(), x, compiled=True)


def test_returned_view_of_an_input_is_written_through() -> None:
    def fn(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return t.view(-1)[2:], t.sigmoid() + 1

    runner = native(fn)
    with torch.no_grad():
        for _ in range(3):
            x = torch.zeros(4, 4)
            view, _ = runner(x)
            view.fill_(3.0)
            assert x.sum() == 3.0 * 14


def test_writes_to_own_tensors() -> None:
    def fn(t: torch.Tensor) -> torch.Tensor:
        y = t * 2
        y += 1
        y.relu_()
        z = y * t
        y.mul_(3)
        return y + z

    check(fn, torch.randn(5, 7))


def test_writes_that_others_see_are_replayed() -> None:
    def fn(t: torch.Tensor) -> torch.Tensor:
        y = t * 2
        view = y[0]
        y.add_(1)
        return view + 1

    check(fn, torch.randn(5, 7), compiled=False)

    def onto_input(t: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        out.add_(t.exp())
        return out * 2

    runner = native(onto_input)
    a, b = torch.zeros(3), torch.zeros(3)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(runner(torch.ones(3), a), onto_input(torch.ones(3), b))
            assert torch.equal(a, b)


def test_training_with_dropout() -> None:
    model = Block()
    runner = native(model)
    for _ in range(3):
        x = torch.randn(2, 4, 64)
        torch.manual_seed(0)
        out = runner(x)
        torch.manual_seed(0)
        wanted = model(x)
        assert_same(out.detach(), wanted.detach())
        assert out.requires_grad
    assert runner._kintsugi_compiled.stats()["native_runs"] == 2


def test_grad_modes_inside() -> None:
    layer = torch.nn.Linear(8, 8)

    @torch.no_grad()
    def inside(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(layer(x)) * 2 + x

    runner = native(inside)
    for _ in range(3):
        x = torch.randn(3, 8)
        assert_same(runner(x), inside(x))
        assert torch.is_grad_enabled()
    assert runner._kintsugi_compiled.stats()["native_runs"] > 0

    def mixed(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = layer(x).sigmoid()
        return layer(x) * scale

    runner = native(mixed)
    for _ in range(3):
        x = torch.randn(3, 8)
        out = runner(x)
        assert_same(out.detach(), mixed(x).detach())
        assert out.requires_grad


def test_inference_mode_and_autocast() -> None:
    model = Block().eval()
    runner = native(model)
    x = torch.randn(2, 4, 64)
    for _ in range(3):
        with torch.inference_mode():
            assert_same(runner(x), model(x))
            assert runner(x).is_inference()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            got, wanted = runner(x), model(x)
            assert got.dtype == wanted.dtype and torch.equal(got, wanted)


def test_random_numbers_are_those_of_eager_mode() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x.exp(), 0.5) + torch.rand(3)

    runner = native(fn)
    for _ in range(3):
        x = torch.randn(3)
        torch.manual_seed(5)
        got = runner(x)
        torch.manual_seed(5)
        assert torch.equal(got, fn(x))


def test_errors_are_the_programs(capfd: pytest.CaptureFixture[str]) -> None:
    table = torch.nn.Embedding(10, 4)

    def fn(ids: torch.Tensor) -> torch.Tensor:
        return F.gelu(table(ids)) * 2

    runner = native(fn)
    with torch.no_grad():
        for _ in range(2):
            runner(torch.tensor([1, 2]))
        with pytest.raises(IndexError, match="index out of range"):
            runner(torch.tensor([1, 99]))
        assert_same(runner(torch.tensor([3, 4])), fn(torch.tensor([3, 4])))


def test_background_swap_and_wait() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x) * x + torch.tanh(x)

    runner = kintsugi.compile(fn, backend="native")
    x = torch.randn(100)
    for _ in range(3):
        assert_same(runner(x), fn(x))
    assert kintsugi.wait(60)
    assert runner.stats().native_ready == 1
    assert_same(runner(x), fn(x))
    assert runner.stats().native_runs >= 1


def test_side_traces_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = F.gelu(x) * 2
        print("sum")
        if y.sum() > 0:
            return torch.tanh(y) + x
        return torch.sigmoid(y) - x

    runner = native(fn)
    with torch.no_grad():
        for k in range(8):
            x = torch.full((5,), 1.0 if k % 2 else -0.1)
            assert_same(runner(x), fn(x))
    lines = capsys.readouterr().out.split()
    assert lines == ["sum"] * 16


def test_threads_call_while_code_arrives() -> None:
    model = Small().eval()
    runner = kintsugi.compile(model, backend="native")
    ids = [torch.randint(50, (2, 8)) for _ in range(8)]
    with torch.no_grad():
        wanted = [model(i) for i in ids]

    def work(k: int) -> None:
        for _ in range(20):
            assert_same(runner(ids[k]), wanted[k])

    in_threads(work, 8)


def test_fork_with_work_in_the_background() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x) * x - x.exp()

    runner = kintsugi.compile(fn, backend="native")
    x = torch.randn(64)
    runner(x), runner(x)
    child = os.fork()
    if child == 0:
        ok = False
        try:
            assert kintsugi.wait(60)
            assert_same(runner(x), fn(x))
            other = kintsugi.compile(
                lambda t: torch.tanh(t) * 3 + t, backend="native", options={"sync": True}
            )
            other(x)
            assert_same(other(x), torch.tanh(x) * 3 + x)
            stats = runner.stats()
            assert stats.native_ready == 1, stats
            ok = True
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kintsugi.wait(60)
    assert_same(runner(x), fn(x))


def test_reset_while_compiling() -> None:
    for k in range(5):
        runner = kintsugi.compile(lambda x, k=k: torch.tanh(x * k) + x, backend="native")
        x = torch.randn(10)
        runner(x), runner(x)
        kintsugi.reset()
        assert_same(runner(x), torch.tanh(x * k) + x)
    assert kintsugi.wait(60)


SCRIPT = """
import sys, torch, torch.nn.functional as F, kintsugi
fn = lambda x: F.gelu(x) * 3 + F.softmax(x, -1)
runner = kintsugi.compile(fn, backend="native", options={"sync": True})
x = torch.randn(4, 9)
runner(x)
torch.testing.assert_close(runner(x), fn(x))
info = kintsugi.cache_info()
print(info.compiled, info.loaded, info.rejected, info.disk_files)
"""


def run_script(cache: Path, script: str = SCRIPT) -> list[int]:
    env = {**os.environ, "KINTSUGI_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_second_process_loads_from_disk(tmp_path: Path) -> None:
    compiled, loaded, _, files = run_script(tmp_path)
    assert compiled > 0 and loaded == 0 and files == compiled
    assert run_script(tmp_path)[:2] == [0, compiled]
    for file in (tmp_path / "kernels").glob("*.kernel"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)
    assert run_script(tmp_path)[:3] == [compiled, 0, compiled]
    for file in (tmp_path / "kernels").glob("*.kernel"):
        file.write_bytes(file.read_bytes()[:40])
    assert run_script(tmp_path)[:3] == [compiled, 0, compiled]


def test_exit_with_work_in_the_background(tmp_path: Path) -> None:
    script = """
import torch, kintsugi
for k in range(30):
    runner = kintsugi.compile(lambda x, k=k: torch.tanh(x) * k + x.exp(), backend="native")
    runner(torch.randn(k + 1)); runner(torch.randn(k + 1))
print(1)
"""
    assert run_script(tmp_path, script) == [1]


def test_options_are_checked() -> None:
    with pytest.raises(TypeError, match="sync"):
        kintsugi.compile(lambda x: x, backend="native", options={"sync": 1})
    with pytest.raises(ValueError, match="strict"):
        kintsugi.compile(lambda x: x, backend="eager", options={"strict": True})


def test_native_code_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINTSUGI_DEFAULT_BACKEND", raising=False)
    script = """
import kintsugi, torch
runner = kintsugi.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Softmax(-1)))
with torch.no_grad():
    for _ in range(3):
        runner(torch.ones(2, 8))
        kintsugi.wait()
print(runner.stats().native_segments, runner.stats().native_ready)
with kintsugi.config.patch(default_backend="eager"):
    again = kintsugi.compile(lambda x: x * 2 + 1)
again(torch.ones(3)); again(torch.ones(3)); kintsugi.wait()
print(again.stats().native_segments)
"""
    assert run_script(tmp_path, script) == [1, 1, 0]


def test_views_of_what_is_computed_beside_it() -> None:
    """An argument that looks at other elements of the same result has to find them there."""
    x = torch.randn(40, 40)

    def transposed(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y.t() + y

    def shifted(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        return y[1:] + y[:-1] * y[:1]

    def summed(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y[:, 3:7].sum(-1, keepdim=True) + y

    def twice(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        z = y.view(4, 10, 40) + 1
        return z.view(40, 40).t() * y + y.sum(0)

    for fn in (transposed, shifted, summed, twice):
        check(fn, x)


def test_what_is_the_same_in_every_run_is_computed_once() -> None:
    def masked(x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[-1])
        mask = places[None, :] <= places[:, None]
        bias = torch.where(mask, 0.0, float("-inf"))
        ones = x.new_ones(x.shape[-1])
        return F.softmax(x + bias, -1) * ones + torch.zeros_like(x)

    runner = check(masked, torch.randn(3, 8, 8))
    for _ in range(3):
        x = torch.randn(3, 8, 8)
        with torch.no_grad():
            assert_same(runner(x), masked(x))

    def work(k: int) -> None:
        x = torch.randn(3, 8, 8)
        for _ in range(20):
            assert_same(runner(x), masked(x))

    in_threads(work, 4)


def test_what_leaves_is_made_anew() -> None:
    """The caller may write to what it gets, whatever it was computed from."""

    def table(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        places = torch.arange(6) * 2
        grid = torch.ones(4, 6).mul(3)
        return places, places.view(2, 3), grid.t(), x * grid, grid.expand(2, 4, 6), torch.zeros(3)

    runner = native(table)
    x = torch.randn(4, 6)
    with torch.no_grad():
        for _ in range(4):
            got, wanted = runner(x), table(x)
            assert_same(got, wanted)
            for tensor in (got[0], got[2], got[3], got[5]):
                tensor.add_(1)


def test_boolean_masks_of_attention() -> None:
    q = torch.randn(2, 3, 8, 16)
    mask = torch.rand(2, 1, 8, 8) > 0.3
    mask[..., 0] = True

    def two(q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = F.scaled_dot_product_attention(q * 2, q, q, attn_mask=mask)
        z = F.scaled_dot_product_attention(y, q, q, attn_mask=mask, scale=0.5)
        return (
            z
            + F.scaled_dot_product_attention(z, q, q, is_causal=True)
            + F.scaled_dot_product_attention(q, q, q, mask * 1.0)
        )

    check(two, q, mask)
    check(two, q.bfloat16(), mask)


def test_forward_mode_derivatives() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).tanh() + 1

    compiled = kintsugi.compile(program, backend="native", options={"sync": True})
    x, tangent = torch.randn(4), torch.randn(4)
    for _ in range(3):
        compiled(x)
    for grad in (False, True):
        with torch.set_grad_enabled(grad), forward_ad.dual_level():
            dual = forward_ad.make_dual(x, tangent)
            expected = forward_ad.unpack_dual(program(dual)).tangent
            for _ in range(3):
                found = forward_ad.unpack_dual(compiled(dual)).tangent
                assert found is not None and torch.equal(found, expected)


def test_kernels_have_names_for_perf(tmp_path: Path) -> None:
    source = """
import os, torch, kintsugi
call = kintsugi.compile(lambda x: torch.tanh(x) * 2 + x.sum(-1, keepdim=True), backend="native", options={"sync": True})
for _ in range(3):
    call(torch.randn(4, 40))
print(os.getpid())
"""
    env = os.environ | {"KINTSUGI_PERF_MAP": "1", "KINTSUGI_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", source], env=env, capture_output=True, text=True, check=True)
    named = Path(f"/tmp/perf-{done.stdout.strip()}.map")
    lines = named.read_text().splitlines()
    named.unlink()
    assert lines
    for line in lines:
        address, size, name = line.split(" ", 2)
        assert int(address, 16) > 0
        assert int(size, 16) > 0
        assert name.startswith("kintsugi:")
    assert any("tanh" in line and "reduce.sum" in line for line in lines)
