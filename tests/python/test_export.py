"""kintsugi.export(): exported programs against eager mode."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import io
import itertools
import logging
import math
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from export_checks import check, check_same, line_of, rand
from torch import nn
from torch.export import Dim
from torch.utils.checkpoint import checkpoint

import kintsugi
from kintsugi import _export_modes

logger = logging.getLogger(__name__)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.layers(x) * scale


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x))).mean((2, 3))


def test_modules() -> None:
    model = Mlp().eval()
    program = check(model, (rand(5, 4),), (rand(5, 4, seed=1),))
    assert isinstance(program, torch.export.ExportedProgram)
    assert list(program.state_dict) == list(model.state_dict())
    assert all(program.state_dict[name] is value for name, value in model.named_parameters())
    assert program.graph_signature.user_inputs == ("x",)


def test_random_numbers() -> None:
    model = Mlp()
    before = torch.random.get_rng_state()
    kintsugi.export(model, (rand(5, 4),))
    assert torch.equal(torch.random.get_rng_state(), before)  # those of the recorded call are given back
    check(model, (rand(5, 4),))  # the same are drawn as in eager mode


def test_batch_norm_that_does_not_train() -> None:
    program = check(ConvNet().eval(), (rand(2, 3, 8, 8),))
    assert not program.run_decompositions().graph_signature.buffers_to_mutate


def test_batch_norm_that_trains() -> None:
    model = ConvNet()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    program = kintsugi.export(model, (rand(2, 3, 8, 8),))
    check_same(before, dict(model.state_dict()))  # the recorded call is undone
    mutated = set(program.run_decompositions().graph_signature.buffers_to_mutate.values())
    assert mutated == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    run, model = program.module(), copy.deepcopy(model)
    for seed in range(3):
        x = rand(2, 3, 8, 8, seed=seed)
        check_same(model(x), run(x))
    check_same(dict(model.state_dict()), dict(run.state_dict()))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)
        self.shift = torch.tensor([0.5])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids)) * self.scale + self.shift


def test_tied_weights_buffers_and_constants() -> None:
    model = Tied()
    program = check(model, (torch.tensor([1, 5, 2]),))
    assert list(program.state_dict) == ["embed.weight", "head.weight"]
    assert "scale" in program.graph_signature.buffers
    assert program.graph_signature.lifted_tensor_constants == ("shift",)
    with torch.no_grad():
        model.embed.weight.mul_(2)
    check_same(
        model(torch.tensor([0, 1, 2])), program.module()(torch.tensor([0, 1, 2]))
    )  # the weights are the model's own


def test_gradients_are_those_of_eager_mode() -> None:
    model = Mlp().eval()
    run = kintsugi.export(model, (rand(5, 4),)).module()
    model(rand(5, 4)).sum().backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    run(rand(5, 4)).sum().backward()
    seen = [p.grad for p in run.parameters()]
    check_same(expected, seen)


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: Any


class Named(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


torch.export.register_dataclass(Pair, serialized_type_name="test_export.Pair")


def containers(given: dict[str, Any], pair: Pair, named: Named) -> Any:
    total = sum(given["list"]) + pair.left * named.second
    ordered = collections.OrderedDict(b=total, a=named.first)
    return [ordered, Pair(total + 1, (pair.right, None)), Named(total, pair.left), {"n": len(given["list"])}]


def test_containers() -> None:
    given = {"list": [rand(3), rand(3, seed=1)]}
    check(containers, (given, Pair(rand(3), rand(2)), Named(rand(3), rand(3))))
    assert len(given["list"]) == 2


def test_the_arguments_containers_stay() -> None:
    def consumes(parts: list[torch.Tensor]) -> torch.Tensor:
        total = parts.pop() * 2
        parts.append(total)
        return total + parts[0]

    parts = [rand(3), rand(3, seed=1)]
    kept = list(parts)
    kintsugi.export_report(consumes, (parts,))
    assert all(a is b for a, b in zip(parts, kept, strict=True))


def test_keyword_arguments() -> None:
    def f(x: torch.Tensor, *, shift: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale + shift

    program = kintsugi.export(f, (rand(3),), {"shift": rand(3, seed=1), "scale": 0.5})
    check_same(f(rand(3), shift=rand(3), scale=0.5), program.module()(rand(3), shift=rand(3), scale=0.5))
    assert program.graph_signature.user_inputs[:2] == ("x", "shift")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.project(x).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(width // 2)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        out = scores.masked_fill(~mask, -1e9).softmax(-1) @ v
        return out.transpose(1, 2).reshape(batch, length, width)[:, 1:]


def test_sizes_that_vary() -> None:
    sizes = [(2, 5), (3, 7), (4, 3), (9, 16)]
    batch, length = Dim("batch"), Dim("length", min=3)
    calls = [(rand(b, n, 8),) for b, n in sizes]
    program = check(Attention(), *calls, dynamic_shapes={"x": {0: batch, 1: length}})
    assert len(program.range_constraints) == 2


def test_sizes_in_arithmetic_and_branches() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        n = x.shape[0]
        if n > 3:
            x = x * (n - 1) / n
        return torch.cat([x, x.new_zeros(2 * n + 1)]), x.numel() // 2

    check(f, (rand(5),), (rand(8),), dynamic_shapes={"x": {0: Dim("n", min=4)}})
    with pytest.raises(torch._dynamo.exc.UserError, match="n"):
        kintsugi.export(f, (rand(5),), dynamic_shapes={"x": {0: Dim("n")}})


def test_dim_auto_and_shapes_collections() -> None:
    x = rand(4, 6)
    for shapes in (({0: Dim.AUTO},), torch.export.ShapesCollection()):
        if isinstance(shapes, torch.export.ShapesCollection):
            shapes[x] = {0: Dim.DYNAMIC}
        program = kintsugi.export(Attend(), (x,), dynamic_shapes=shapes)
        check_same(Attend()(rand(9, 6)), program.module()(rand(9, 6)))


class Attend(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1) * x.shape[0]


def test_item_is_a_symbol() -> None:
    def f(x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n = int(k.item())
        torch._check(n >= 0)
        torch._check(n < 10)
        return x * k.item(), x.new_ones(n)

    program = kintsugi.export(f, (rand(3), torch.tensor(4)))
    for k in (4, 7):
        check_same(f(rand(3), torch.tensor(k)), program.module()(rand(3), torch.tensor(k)))
    with pytest.raises(RuntimeError):
        program.module()(rand(3), torch.tensor(11))


def test_checks_are_kept() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        total = int(x.sum().item())
        torch._check(total < 100)
        torch._check(x.max().item() < 50.5)
        return x + total

    program = check(f, (torch.ones(3),), (torch.ones(3) * 33,))
    for x in (torch.ones(3) * 34, torch.tensor([51.0, -50.0, 1.0])):
        with pytest.raises(RuntimeError):
            f(x)
        with pytest.raises(RuntimeError):
            program.module()(x)


def test_sizes_that_depend_on_data() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0] * 2

    check(f, (rand(5),), (rand(5, seed=1),), (rand(5, seed=2),))


def test_writes_to_arguments() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y[0] = 7
        return x + y

    x, y = rand(3), rand(3, seed=1)
    program = kintsugi.export(f, (x, y))
    check_same([x, y], [rand(3), rand(3, seed=1)])
    check_same(f(x, y), program.module()(a := rand(3), b := rand(3, seed=1)))
    check_same([x, y], [a, b])
    assert len(program.run_decompositions().graph_signature.user_inputs_to_mutate) == 2


def test_one_tensor_in_two_places() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * y

    x = rand(3)
    run = kintsugi.export(f, (x, x)).module()
    check_same(f(rand(3), rand(3, seed=1)), run(rand(3), rand(3, seed=1)))


class Careful(nn.Module):
    """What torch.export(strict=True) does not take: a logger inside of try and except, a class made by type()."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.options: dict[str, int] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            times = self.options["times"]
        except KeyError:
            logger.warning("no option, %d tries", len(self.options))
            times = 3
        parts = collections.defaultdict(list)
        for step in itertools.islice(itertools.count(), times):
            parts[step % 2].append(self.linear(x) * step)
        local = type("Local", (), {"total": sum(parts[0])})
        return local.total + sum(parts[1])


def test_what_torch_export_refuses() -> None:
    model = Careful()
    with pytest.raises(Exception, match="(?i)logg|unsupported|trac"):
        torch.export.export(model, (rand(2, 4),), strict=True)
    check(model, (rand(2, 4),), (rand(2, 4, seed=3),))


def test_the_program_sees_numbers_where_torch_export_shows_symbols() -> None:
    class Checks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = x.shape[0]
            if type(rows) is not int:
                raise TypeError("rows must be an int")
            return x.repeat(rows, 1)

    shapes = {"x": {0: Dim("rows")}}
    with pytest.raises(TypeError, match="must be an int"):
        torch.export.export(Checks(), (rand(3, 2),), dynamic_shapes=shapes)
    check(Checks(), (rand(3, 2),), (rand(5, 2),), dynamic_shapes=shapes)


def test_modes() -> None:
    def f(x: torch.Tensor) -> list[torch.Tensor]:
        with torch.no_grad():
            a = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b = x @ x
            with torch.autocast("cpu", enabled=False):
                c = x @ x
            d = c @ b
        return [a, b, c, d, x @ x]

    @torch.inference_mode()
    def g(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    program = check(f, (rand(4, 4),))
    assert "wrap_with_autocast" in str(program.graph_module.code)
    assert "wrap_with_set_grad_enabled" in str(program.graph_module.code)
    check(g, (rand(3),))
    assert _export_modes.is_mode(torch.set_autocast_enabled)
    assert not _export_modes.is_mode(torch.sin)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 2


@kintsugi.allow_in_graph
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def test_functions_that_are_operators() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return Double.apply(triple(x)) + checkpoint(lambda v: v.sin() * x, x, use_reentrant=False)

    check(f, (rand(3),), (rand(3, seed=2),))


def test_functions_of_python_that_only_compute() -> None:
    def f(x: torch.Tensor) -> Any:
        top = x.topk(2)
        named = {"b": x, "a": getattr(top, "val" + "ues")}
        return (
            named["a"],
            str(x.shape),
            max(x.shape),
            sum({"x": x, "y": x}.values()),
            x.nonzero().shape[0],
        )

    check(f, (rand(3, 4),))


def test_metadata_of_arguments_comes_back() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.t_() + 1

    x = rand(3, 4)
    kintsugi.export_report(f, (x,))
    check_same(x, rand(3, 4))


def test_transforms_and_control_flow_of_torch() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        rows = torch.vmap(lambda row: row.sum() * row)(x)
        chosen = torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))
        return rows + chosen

    check(f, (rand(3, 4),), (-rand(3, 4).abs(),), (rand(3, 4).abs(),))


class Layers(nn.Module):
    """Weak references to weights, functions of torch's own that run no operator, a lazy layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.encode = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.last = nn.LazyLinear(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.lstm(x)
        z, weights = self.attend(y, y, y)
        return self.last(self.encode(z) + weights.sum())


def test_layers_of_torch() -> None:
    model = Layers().eval()
    program = kintsugi.export(model, (rand(2, 5, 3),))
    torch.testing.assert_close(program.module()(rand(2, 5, 3)), model(rand(2, 5, 3)))
    assert "last.weight" in program.state_dict


def test_other_callables() -> None:
    class Adds:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    check(Adds(), (rand(3),))
    check(functools.partial(torch.add, alpha=2), (rand(3), rand(3, seed=1)))
    check(torch.mul, (rand(3), rand(3, seed=1)))
    check(Adds().__call__, (rand(3),))
    with pytest.raises(TypeError, match=r"torch\.jit"):
        kintsugi.export(torch.jit.script(nn.Linear(3, 3)), (rand(3),))


def test_exported_programs_are_exported_again() -> None:
    first = kintsugi.export(Mlp().eval(), (rand(2, 4),))
    check(first.module(), (rand(2, 4),))


def test_arguments_of_all_kinds() -> None:
    class Takes(nn.Module):
        def forward(self, x: Any, mask: Any = None, *rest: Any, k: int = 1, **others: Any) -> Any:
            return x * (1 if mask is None else mask) + sum(rest) + k + others["extra"]

    args, kwargs = (rand(3), None, rand(3, seed=1)), {"extra": rand(3, seed=2), "k": 2}
    program = kintsugi.export(Takes(), args, kwargs)
    check_same(Takes()(*args, **kwargs), program.module()(*args, **kwargs))
    assert program.graph_signature.user_inputs == ("x", None, "rest_0", "extra", 2)


def test_custom_operators() -> None:
    name = "kintsugi_test_export::halve"

    @torch.library.custom_op(name, mutates_args=())
    def halve(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() / 2)

    @halve.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    def f(x: torch.Tensor) -> torch.Tensor:
        return halve(x) + 1

    program = check(f, (rand(3),))
    assert torch.ops.kintsugi_test_export.halve.default in {n.target for n in program.graph.nodes}


def test_hooks_are_part_of_the_call() -> None:
    model = Mlp().eval()
    model.register_forward_hook(lambda module, args, result: result * 10)
    model.layers[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    check(model, (rand(2, 4),))
    assert len(model._forward_hooks) == 1


def test_save_and_load() -> None:
    program = kintsugi.export(ConvNet().eval(), (rand(2, 3, 8, 8),), dynamic_shapes={"x": {0: Dim("n")}})
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    for n in (2, 5):
        check_same(program.module()(rand(n, 3, 8, 8)), loaded.module()(rand(n, 3, 8, 8)))


def test_decompositions() -> None:
    model = ConvNet().eval()
    program = kintsugi.export(model, (rand(2, 3, 8, 8),)).run_decompositions()
    targets = {n.target for n in program.graph.nodes if n.op == "call_function"}
    assert torch.ops.aten.convolution.default in targets
    torch.testing.assert_close(program.module()(rand(2, 3, 8, 8)), model(rand(2, 3, 8, 8)))


def test_nodes_have_the_lines_of_the_program() -> None:
    program = kintsugi.export(Mlp().eval(), (rand(2, 4),))
    (product,) = (n for n in program.graph.nodes if n.target is torch.ops.aten.mul.Tensor)
    line = line_of(Mlp.forward, "* scale")
    assert f'File "{__file__}", line {line}, in forward' in product.meta["stack_trace"]
    path, owner = next(iter(product.meta["nn_module_stack"].values()))
    assert (path, owner.rpartition(".")[2]) == ("", "Mlp")


def test_compiled_callables_are_exported() -> None:
    model = Mlp().eval()
    compiled = kintsugi.compile(model, backend="eager")
    check_same(model(rand(2, 4)), kintsugi.export(compiled, (rand(2, 4),)).module()(rand(2, 4)))
    assert compiled.stats().trace_count == 0

    @kintsugi.compile(backend="eager")
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    check(f, (rand(3),))
    bound = types.MethodType(f, rand(3))
    check_same(rand(3) * 2, kintsugi.export(bound, ()).module()())


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = kintsugi.compile(ConvNet(), backend="eager")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return times_two(self.inner(x))


@kintsugi.compile(backend="eager")
def times_two(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("shapes", [None, {"x": {0: Dim("n")}}])
def test_torch_export_takes_compiled_callables(strict: bool, shapes: Any) -> None:
    torch.manual_seed(0)
    model = ConvNet()
    x = rand(2, 3, 8, 8)
    programs = [
        torch.export.export(each, (x,), dynamic_shapes=shapes, strict=strict)
        for each in (model, kintsugi.compile(model, backend="eager"))
    ]
    first, second = ([str(n.target) for n in p.graph.nodes if n.op != "placeholder"] for p in programs)
    assert first == second
    signatures = [p.graph_signature for p in programs]
    assert signatures[0].parameters == signatures[1].parameters
    assert signatures[0].buffers == signatures[1].buffers
    assert list(programs[0].state_dict) == list(programs[1].state_dict)
    outer = Outer().eval()
    program = torch.export.export(outer, (x,), dynamic_shapes=shapes, strict=strict)
    check_same(outer(x), program.module()(x))


def transformers() -> Any:
    return pytest.importorskip("transformers", reason="transformers is not installed")


def bert() -> tuple[nn.Module, dict[str, Any]]:
    library = transformers()
    config = library.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=50
    )
    ids = torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(0))
    return library.BertModel(config).eval(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def gpt2() -> tuple[nn.Module, dict[str, Any]]:
    library = transformers()
    config = library.GPT2Config(
        n_embd=32, n_layer=2, n_head=2, vocab_size=50, n_positions=64, bos_token_id=0, eos_token_id=0
    )
    ids = torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(0))
    return library.GPT2LMHeadModel(config).eval(), {"input_ids": ids, "use_cache": False}


@pytest.mark.parametrize("make", [bert, gpt2])
def test_models_of_transformers(make: Callable[[], tuple[nn.Module, dict[str, Any]]]) -> None:
    model, kwargs = make()
    sizes = {0: Dim("batch", min=2, max=16), 1: Dim("length", min=2, max=60)}
    shapes = {name: sizes if isinstance(value, torch.Tensor) else None for name, value in kwargs.items()}
    run = kintsugi.export(model, (), kwargs, dynamic_shapes=shapes).module()
    for batch, length in ((2, 7), (3, 11), (5, 4)):
        ids = torch.randint(0, 50, (batch, length))
        call = {
            n: ids if n == "input_ids" else torch.ones_like(ids) if n != "use_cache" else False
            for n in kwargs
        }
        expected, seen = model(**call), run(**call)
        assert type(expected) is type(seen)
        torch.testing.assert_close(tuple(seen.values()), tuple(expected.values()))


def test_onnx(tmp_path: Any) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    program = kintsugi.export(ConvNet().eval(), (rand(2, 3, 8, 8),), dynamic_shapes={"x": {0: Dim("n")}})
    exported = torch.onnx.export(program, dynamo=True)
    assert exported is not None
    graph = exported.model_proto.graph
    assert [node.op_type for node in graph.node][0] == "Conv"
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param
