"""What kintsugi.export() refuses or leaves out, by line of the program."""

from __future__ import annotations

import copy
import importlib
import logging
import math
import operator
import random
import time
import warnings
from collections.abc import Callable

import pytest
import torch
from export_checks import check, check_same, line_of, rand, refusal
from torch import nn

import kintsugi
from kintsugi import _export_callees

logger = logging.getLogger(__name__)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 1e6:  # the branch
        return x
    y = x + 1
    while y.max() < 0:  # the loop
        y = y + 1
    return y


def test_branches_on_data_are_refused_each_with_its_line() -> None:
    report = refusal(branch, rand(3))
    assert [f.line for f in report.refused] == [
        line_of(branch, "# the branch"),
        line_of(branch, "# the loop"),
    ]
    assert all(f.file == __file__ and f.function == "branch" for f in report.refused)
    assert "values of a tensor" in report.refused[0].what
    assert not report.exportable
    assert kintsugi.export_report(branch, (rand(3),)) == report


@pytest.mark.parametrize("place", ["file", "module"])
def test_a_function_is_none_of_torchs_whatever_it_says(place: str) -> None:
    """torch.export goes through Python functions of torch's once more, and that alone: not through this one."""
    source = "def logged(x, seen=[]):\n    seen.append(1)\n    return len(seen)\n"
    torchs = torch.nn.functional.relu
    file = torchs.__code__.co_filename if place == "file" else "<elsewhere>"
    space = {"__name__": torchs.__module__ if place == "module" else "elsewhere", "__file__": file}
    exec(compile(source, file, "exec"), space)
    assert _export_callees._is_torch(torchs) and _export_callees.is_seen_through(torch.nn.functional.softmax)
    for asks in (_export_callees._is_torch, _export_callees.is_seen_through, _export_callees.changes_torch):
        assert not asks(space["logged"])


def test_functions_of_a_module_are_told_by_the_module_itself() -> None:
    assert _export_callees.is_harmless(time.perf_counter) and _export_callees.is_harmless(operator.add)
    assert _export_callees.is_harmless(math.sqrt) and _export_callees.is_harmless(warnings.warn)
    assert _export_callees.is_harmless(print) and not _export_callees.is_harmless(exec)


def talks(x: torch.Tensor) -> torch.Tensor:
    start = time.perf_counter()
    y = x * 2
    print(f"mean {y.mean().item():.3f}")  # the print
    logger.warning("shape %s", x.shape)  # the log
    print("took", time.perf_counter() - start)
    return y


def test_output_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    program = kintsugi.export(talks, (rand(3),))
    printed = capsys.readouterr()
    assert printed.out.startswith("mean ")
    assert "left out" in printed.err
    assert f"{__file__}:{line_of(talks, '# the print')} in talks" in printed.err
    check_same(rand(3) * 2, program.module()(rand(3)))
    assert capsys.readouterr().out == ""
    assert [n.target for n in program.graph.nodes if n.op == "call_function"] == [torch.ops.aten.mul.Tensor]


def test_strict_refuses_what_is_left_out() -> None:
    report = refusal(talks, rand(3), strict=True)
    assert report.exportable
    assert not report.refused
    lines = [f.line for f in report.left_out]
    assert lines[:2] == [line_of(talks, "# the print"), line_of(talks, "# the log")]
    assert len(lines) == 3
    kintsugi.export(Small().eval(), (rand(2, 4),), strict=True)


def test_a_size_of_data_that_the_program_needs() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        found = x[x > 0]
        return found * 2 if found.shape[0] > 1 else x  # needs it

    report = refusal(f, torch.tensor([1.0, 2.0, -1.0]))
    assert [finding.line for finding in report.refused] == [line_of(f, "# needs it")]


def test_numbers_from_outside_are_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * random.random()  # the number

    (finding,) = refusal(f, rand(3)).refused
    assert finding.line == line_of(f, "# the number")
    assert "random" in finding.what

    def g(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if random.random() < 2 else x  # the choice

    assert {finding.line for finding in refusal(g, rand(3)).refused} == {line_of(g, "# the choice")}


@kintsugi.allow_in_graph
def is_large(x: torch.Tensor) -> bool:
    return bool(x.sum() > 1e6)


def text_of_data(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if f"{x.sum().item():.0f}" == "3" else x  # decides


def operator_that_answers(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if is_large(x) else x  # decides


def key_of_data(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if {3.0: True}.get(x.sum().item()) else x  # decides


def clock(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if str(time.time()).startswith("1") else x  # decides


@pytest.mark.parametrize("program", [text_of_data, operator_that_answers, key_of_data, clock])
def test_answers_that_decide_are_refused(program: Callable[..., torch.Tensor]) -> None:
    lines = {finding.line for finding in refusal(program, torch.ones(3)).refused}
    assert lines == {line_of(program, "# decides")}


def test_memory_of_tensors_behind_torch_is_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.numpy()[0] = 1.0  # the write
        return x * 2

    assert {finding.line for finding in refusal(f, rand(3)).refused} == {line_of(f, "# the write")}


@kintsugi.disable(reason="a test")
def hidden(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_opaque_steps_are_refused_with_their_code() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return hidden(x) * 2  # the step

    (finding,) = refusal(f, rand(3)).refused
    assert finding.line == line_of(f, "# the step")
    assert finding.why.startswith("KTG0107")
    assert "a test" in finding.why


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.kept: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1  # the count
        self.kept = x * 3  # the tensor
        return self.kept + 1


def test_attributes_are_left_out() -> None:
    model = Counts()
    report = kintsugi.export_report(model, (rand(3),))
    assert [f.line for f in report.left_out] == [
        line_of(Counts.forward, "# the count"),
        line_of(Counts.forward, "# the tensor"),
    ]
    assert report.left_out[0].what == "self.calls is set"
    run = kintsugi.export(model, (rand(3),)).module()
    check_same(rand(3) * 3 + 1, run(rand(3)))
    refusal(model, rand(3), strict=True)


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = torch.zeros(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = self.state * 0.5 + x  # the state
        return self.state


class RemembersInBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = self.state * 0.5 + x
        print("between")
        self.steps += 1
        return self.state * self.steps


def test_state_is_to_be_a_buffer() -> None:
    (finding,) = refusal(Remembers(), rand(3)).refused
    assert finding.line == line_of(Remembers.forward, "# the state")
    assert "buffer" in finding.cure

    model = RemembersInBuffer()
    first = model.state
    program = kintsugi.export(model, (rand(3),))
    assert model.state is first
    assert torch.equal(first, torch.zeros(3))
    mutated = program.run_decompositions().graph_signature.buffers_to_mutate.values()
    assert set(mutated) == {"state", "steps"}
    run, model = program.module(), copy.deepcopy(model)
    for seed in range(3):
        check_same(model(rand(3, seed=seed)), run(rand(3, seed=seed)))
    check_same(dict(model.state_dict()), dict(run.state_dict()))


def test_settings_of_torch_are_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # the setting
        y = torch.ones(3)
        torch.set_default_dtype(before)
        return y + x

    assert refusal(f, rand(3)).refused[0].line == line_of(f, "# the setting")

    def kernels(x: torch.Tensor) -> torch.Tensor:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return nn.functional.scaled_dot_product_attention(x, x, x)

    x = rand(1, 2, 4, 8)
    (finding, *_) = kintsugi.export_report(kernels, (x,)).findings
    assert "rounding" in finding.why
    torch.testing.assert_close(kintsugi.export(kernels, (x,)).module()(x), kernels(x))


def test_exceptions_of_operators_are_not_caught() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        try:
            return x[[10]]  # raises
        except IndexError:
            return x * 7

    (finding,) = refusal(f, rand(3)).refused
    assert finding.line == line_of(f, "# raises")


def seeds(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)  # the seed
    return x + torch.randn(3)


def seeds_of_module(x: torch.Tensor) -> torch.Tensor:
    torch.random.manual_seed(3)  # the seed
    return x + torch.randn(3)


def state_of_generator(x: torch.Tensor) -> torch.Tensor:
    torch.set_rng_state(STATE)  # the seed
    return x + torch.randn(3)


STATE = torch.get_rng_state()


@pytest.mark.parametrize("program", [seeds, seeds_of_module, state_of_generator])
@pytest.mark.parametrize("wrapped", [False, True])
def test_seeds_are_refused(program: Callable[..., torch.Tensor], wrapped: bool) -> None:
    if wrapped:  # torch.manual_seed is another function from then on
        importlib.import_module("torch._dynamo")
    lines = {finding.line for finding in refusal(program, rand(3)).refused}
    assert lines == {line_of(program, "# the seed")}


def test_what_is_asked_is_checked() -> None:
    with pytest.raises(TypeError, match="tuple"):
        kintsugi.export(Small(), rand(2, 4))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callable"):
        kintsugi.export(3, ())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="kwargs"):
        kintsugi.export(Small(), (rand(2, 4),), [1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="strict"):
        kintsugi.export(Small(), (rand(2, 4),), strict=1)  # type: ignore[arg-type]


def test_exceptions_of_the_program_pass() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        kintsugi.export(f, (rand(3),))


def test_reports_are_for_people() -> None:
    assert str(kintsugi.export_report(Small().eval(), (rand(2, 4),))) == "Everything is exported."
    text = str(kintsugi.export_report(branch, (rand(3),)))
    assert text.startswith("2 refused, 0 left out:")
    assert "cure: " in text


constant = torch.zeros(3)


def test_writes_to_constants_are_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        constant[1:].add_(1)  # the write
        return x + constant

    (finding,) = refusal(f, rand(3)).refused
    assert finding.line == line_of(f, "# the write")
    assert finding.what == "constant is written to"
    check(lambda x: x + constant, (rand(3),))


class Shifts(nn.Module):
    """Reads the old values of a buffer behind the assignment, and gives them back."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        old = self.state
        self.state = x + 1
        new = old * 2 + self.state
        self.state.mul_(2)
        return old, new


def test_old_values_of_buffers() -> None:
    model = Shifts()
    run = kintsugi.export(model, (rand(3),)).module()
    model = copy.deepcopy(model)
    for seed in range(3):
        check_same(model(rand(3, seed=seed)), run(rand(3, seed=seed)))
        check_same(model.state, run.state)
