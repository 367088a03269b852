"""Modes and transforms of torch: function and dispatch modes, vmap, grad and the like, autograd functions, hooks,
tensor subclasses, inference mode, autocast."""

from __future__ import annotations

from .family import Family, parts, rows

PRELUDE = """
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

class Noting(TorchFunctionMode):
    def __init__(self, log):
        super().__init__()
        self.log = log
    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.log.append(getattr(function, "__name__", "?"))
        return function(*args, **(kwargs or {}))

class Halving(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 0.5 if function in (torch.Tensor.sin, torch.neg) else result

class Dispatched(TorchDispatchMode):
    def __init__(self, log):
        super().__init__()
        self.log = log
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.log.append(str(function))
        return function(*args, **(kwargs or {}))

class Tagged(torch.Tensor):
    pass

class Logged(torch.Tensor):
    calls = 0
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        Logged.calls += 1
        return super().__torch_function__(function, types, args, kwargs or {})

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, n):
        ctx.save_for_backward(v)
        ctx.n = n
        return v * n
    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g * ctx.n + v * 0, None

SEEN = []
MODES_NET = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
with torch.no_grad():
    MODES_NET[0].weight.copy_(torch.eye(4))
    MODES_NET[0].bias.fill_(0.5)

def restore_modes():
    SEEN.clear()
    Logged.calls = 0
    MODES_NET.train()
    MODES_NET[1].reset_running_stats()
    for module in MODES_NET.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    torch.set_grad_enabled(True)
"""

TENSORS = rows("""
torch.vmap(lambda u: u * 2 + $d)($v)
torch.vmap(lambda u, w: u * w + u.sum())($v, $v)
torch.vmap(torch.sin)($v)
torch.vmap(lambda u: torch.where(u > 0, u, 0.5))($v)
torch.vmap(lambda u, w: u + w, in_dims=(0, None))($v, $v[0])
torch.vmap(lambda u: u.cumsum(0), in_dims=1, out_dims=1)($v)
torch.func.grad(lambda u: (u * u).sum())($v)
torch.func.grad(lambda u, w: (u.sin() * w).sum())($v, $v)
torch.func.grad_and_value(lambda u: (u * $d).sum())($v)[0]
torch.func.jvp(lambda u: u * u, ($v,), ($v,))[1]
torch.func.vjp(lambda u: u * 2, $v)[1]($v)[0]
torch.func.jacrev(lambda u: u.sum(0))($v[:1])[0, 0].expand(x.shape[0], 4)
torch.func.vmap(torch.func.grad(lambda u: (u * u).sum()))($v)
torch.func.functional_call(box.net, {"0.bias": torch.zeros(4)}, ($v,))
torch.func.functionalize(lambda u: u.clone().add_(1))($v)
torch.autograd.functional.jvp(lambda u: u * 2, $v.detach(), $v.detach())[1]
Twice.apply($v, $d)
Twice.apply($t, 2.0)
$v.as_subclass(Tagged)
$v.as_subclass(Logged)
torch.Tensor.as_subclass($v, Logged).sin()
($v.as_subclass(Tagged) + 1).as_subclass(torch.Tensor)
MODES_NET($v)
torch.utils.checkpoint.checkpoint(lambda u: u.sin() * 2, $v, use_reentrant=False)
$v.detach().requires_grad_().clone()
torch.nn.functional.dropout($v, 0.5, training=True)
torch.bernoulli($v.detach().abs().clamp(0, 1))
torch.nn.functional.linear($v, torch.eye(4))
torch.nn.functional.scaled_dot_product_attention($v[None], $v[None], $v[None])[0]
torch.einsum("ij,jk->ik", $v, torch.eye(4))
""")

INTEGERS = rows("""
len(SEEN)
Logged.calls
int(MODES_NET[1].num_batches_tracked)
len(MODES_NET[0]._forward_hooks)
int($v.requires_grad)
int($v.is_leaf)
int($v._version > 3)
""")

CONDITIONS = rows("""
torch.is_grad_enabled()
torch.is_inference_mode_enabled()
torch.is_autocast_enabled("cpu")
$v.requires_grad
$v.is_inference()
MODES_NET.training
type($v) is torch.Tensor
isinstance($v, Tagged)
""")

SIMPLE = parts("""
with Noting(log):
    $r = ($v * 2).sin() + $v
===
with Noting(log):
    log.append($v.shape)
===
with Halving():
    $r = torch.neg($v).sin()
===
with Dispatched(log):
    $r = ($v * 2).sin()
===
with Dispatched(log):
    $v.add_(1)
===
with Noting(log), Dispatched(log):
    $r = $v.relu() + $d
===
with torch.no_grad():
    $v.mul_(0.5)
===
with torch.inference_mode():
    $r = $v * 2
===
with torch.autocast("cpu", dtype=torch.bfloat16):
    $r = ($v @ torch.eye(4)).float()
===
with torch.set_grad_enabled($c):
    $r = $v * box.w
===
torch.set_grad_enabled($c)
===
with torch.device("cpu"):
    $r = torch.ones(x.size(0), 4)
===
with torch.random.fork_rng():
    $r = torch.rand(x.size(0), 4)
===
$r = $v.detach().requires_grad_()
(($r * $r).sum() * $d).backward()
log.append($r.grad)
===
$1 = $v.detach().requires_grad_()
$r, = torch.autograd.grad(($1.sin()).sum(), $1)
===
$1 = $v.detach().requires_grad_()
$1.register_hook(lambda g: SEEN.append(g.sum()) or g * 2)
($1 * 3).sum().backward()
$r = $1.grad
===
$1 = box.net[0].register_forward_hook(lambda m, a, out: out + 1)
$r = box.net($v)
$1.remove()
===
$1 = MODES_NET[0].register_forward_pre_hook(lambda m, a: (a[0] * 2,))
$r = MODES_NET($v)
===
MODES_NET.eval()
===
MODES_NET.train($c)
===
MODES_NET[1].running_mean.zero_()
===
log.append(MODES_NET[1].running_mean)
===
with torch.no_grad():
    MODES_NET[1].weight.fill_($i)
===
$1 = $v.as_subclass(Tagged)
log.append((type($1), type($1 + 1), type($1.sum()), type($1[0])))
===
$1 = $v.as_subclass(Logged)
$1.add_(1)
log.append(($1, Logged.calls))
===
$r = $v.as_subclass(Tagged)
$r.tag = $i
log.append(vars($r))
===
$v.note = $i
log.append($v.note)
===
log.append(torch.vmap(lambda u: (u.sum(), u * 2))($v))
===
try:
    torch.vmap(lambda u: u if u.sum() > 0 else -u)($v)
except RuntimeError as e:
    log.append(str(e)[:40])
===
try:
    torch.func.grad(lambda u: u * 2)($v)
except RuntimeError as e:
    log.append(str(e)[:40])
===
try:
    $v.backward()
except RuntimeError as e:
    log.append(str(e)[:30])
===
log.append([p.shape for p in box.net.parameters()])
===
log.append(list(box.net.state_dict()))
===
log.append([n for n, _ in MODES_NET.named_modules()])
===
box.net.zero_grad()
===
$1 = torch.optim.SGD([box.w], lr=0.5)
box.w.grad = torch.ones(4)
$1.step()
log.append(box.w.detach().clone())
===
with torch.autograd.graph.saved_tensors_hooks(lambda u: SEEN.append(1) or u, lambda u: u):
    $r = ($v * box.w).sin()
===
$1 = torch.nn.Parameter($v.detach().clone())
log.append($1)
""")

NESTED = parts("""
with Noting(log):
    $block
===
with Halving():
    $block
===
with Dispatched(log):
    $block
===
with torch.inference_mode($c):
    $block
===
with torch.set_grad_enabled($c):
    $block
===
with torch.no_grad():
    $block
    with torch.enable_grad():
        $block
===
@torch.no_grad()
def $1(v, n=1):
    $body
$r = $1($t)
===
with Noting(log):
    $block
    if $c:
        $raise
===
class $1(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = $i
        self.weight = torch.nn.Parameter(torch.ones(4))
    def forward(self, v, n=1):
        $body
$r = $1()($t) * 1
===
def $1(v, n=1):
    $body
$r = torch.vmap($1)($v.unsqueeze(1)).reshape(-1, 4)[: x.shape[0]]
===
def $1(v, n=1):
    $body
$r = torch.func.grad(lambda u: $1(u).sum())($v)
""")

BETWEEN = parts("""
MODES_NET.eval()
===
MODES_NET[0].register_forward_hook(lambda module, args, out: out * 2)
===
box.net[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
===
box.net.requires_grad_(False)
===
box.net[1] = torch.nn.Tanh()
===
box.w = torch.nn.Parameter(torch.full((4,), 2.0))
===
box.w.data = torch.full((4,), 1.5)
===
box.net[0].weight.data.mul_(0.5)
===
torch.set_grad_enabled(False)
===
MODES_NET[0].bias = None
===
Logged.__torch_function__ = classmethod(lambda cls, f, t, a=(), k=None: torch.Tensor(4).fill_(1))
===
Twice.forward = staticmethod(lambda ctx, v, n: v * 10)
""")

MODES = Family(
    "modes",
    prelude=PRELUDE,
    tensors=TENSORS,
    integers=INTEGERS,
    conditions=CONDITIONS,
    simple=SIMPLE,
    nested=NESTED,
    between=BETWEEN,
)
