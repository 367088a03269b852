"""The systems that run a model: what a user of each writes, with float32 and a fixed number of threads.

A system is imported in its own process only, so Kintsugi's allocator is in none but those whose name says so.
"""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench.deploy.models import Tensors
from bench.systems import in_our_memory

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "build" / "peers"
Call = Callable[[], Any]
Compiler = Callable[[nn.Module, Tensors, int, pathlib.Path], Call]


class Missing(Exception):
    """A package is not installed; the text says how to install it."""


def see_peers() -> None:
    """Packages of `make peers` can be imported from then on, behind those of .venv."""
    if str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))


def load(name: str) -> Any:
    """A module that a system needs. Raises Missing."""
    see_peers()
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Missing(f"{name} is not installed; `make peers` installs it") from error


def _eager(module: nn.Module, inputs: Tensors, _threads: int, _folder: pathlib.Path) -> Call:
    return lambda: module(*inputs)


def _torch_compile(**options: Any) -> Compiler:
    def compile(module: nn.Module, inputs: Tensors, _threads: int, _folder: pathlib.Path) -> Call:
        compiled = torch.compile(module, **options)
        return lambda: compiled(*inputs)

    return compile


def _freezing(module: nn.Module, inputs: Tensors, threads: int, folder: pathlib.Path) -> Call:
    from torch._inductor import config

    config.freezing = True
    return _torch_compile(backend="inductor")(module, inputs, threads, folder)


def _in_our_memory(compiler: Compiler) -> Compiler:
    def compile(module: nn.Module, inputs: Tensors, threads: int, folder: pathlib.Path) -> Call:
        return in_our_memory(compiler(module, inputs, threads, folder))

    return compile


def _kintsugi(backend: str, **settings: Any) -> Compiler:
    def compile(module: nn.Module, inputs: Tensors, _threads: int, folder: pathlib.Path) -> Call:
        import kintsugi

        for name, value in settings.items():
            setattr(kintsugi.config, name, value)
        kintsugi.config.cache_dir = folder / "kintsugi"
        compiled = kintsugi.compile(module, backend=backend)

        def call() -> Any:
            return compiled(*inputs)

        call.stats = compiled.stats  # type: ignore[attr-defined]
        return call

    return compile


def _onnxruntime(module: nn.Module, inputs: Tensors, threads: int, folder: pathlib.Path) -> Call:
    """torch.onnx's exporter, a session with all optimizations; inputs are NumPy arrays that were made before."""
    runtime = load("onnxruntime")
    path = folder / "model.onnx"
    torch.onnx.export(module, inputs, str(path), dynamo=True, verbose=False)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    feeds = dict(zip(names, (tensor.numpy() for tensor in inputs), strict=True))
    return lambda: session.run(None, feeds)


def _openvino(module: nn.Module, inputs: Tensors, threads: int, _folder: pathlib.Path) -> Call:
    """convert_model with the input's sizes, f32, the hint LATENCY; inputs are NumPy arrays that were made before."""
    ov = load("openvino")
    converted = ov.convert_model(module, example_input=inputs)
    converted.reshape({port: tuple(t.shape) for port, t in zip(converted.inputs, inputs, strict=True)})
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": str(threads),
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = ov.Core().compile_model(converted, "CPU", settings)
    arrays = [tensor.numpy() for tensor in inputs]
    return lambda: list(compiled(arrays).values())


@dataclasses.dataclass(frozen=True)
class System:
    """`imports`: what a user of it imports. `slow`: compiles for so long that `--quick` leaves it out."""

    name: str
    title: str
    compile: Compiler
    imports: tuple[str, ...] = ("torch",)
    slow: bool = False
    memory: str = "torch's"


def _all() -> list[System]:
    inductor = _torch_compile(backend="inductor")
    ours = ("torch", "kintsugi")
    return [
        System("eager", "eager", _eager),
        System("eager-pool", "eager, our allocator", _in_our_memory(_eager), ours, memory="ours"),
        System("compile-eager", "torch.compile, backend eager", _torch_compile(backend="eager")),
        System("inductor", "inductor", inductor),
        System("inductor-pool", "inductor, our allocator", _in_our_memory(inductor), ours, memory="ours"),
        System("freezing", "inductor, freezing", _freezing),
        System(
            "max-autotune",
            "max-autotune",
            _torch_compile(backend="inductor", mode="max-autotune"),
            slow=True,
        ),
        System(
            "onnxruntime",
            "ONNX Runtime",
            _onnxruntime,
            ("torch", "onnxscript", "onnxruntime"),
            memory="its own",
        ),
        System("openvino", "OpenVINO", _openvino, ("torch", "openvino"), memory="its own"),
        System("replay", "replay", _kintsugi("eager"), ours, memory="ours"),
        System("native", "native", _kintsugi("native"), ours, memory="ours"),
        System("native-no-pool", "native, torch's allocator", _kintsugi("native", memory_pool_limit=0), ours),
    ]


SYSTEMS = {system.name: system for system in _all()}
