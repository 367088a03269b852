"""Builds the labelled messages of the matcher's test: `python tests/python/kb_messages.py` writes kb_messages.json.

Positives are what torch.compile and Kintsugi really say when the reproducers run, and the messages that torch makes
of each reason in its registry. A label is decided by torch's own id of the reason (or our code), never by the patterns
under test; reasons without an entry are negatives, hard ones. The other negatives are errors of programs that have
nothing to do with compiling, raised for real.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("kb_messages.json")

UNRELATED = """
[][3]
{}["missing"]
int("seven")
1 / 0
open("/no/such/file")
import no_such_module
None.attribute
"a" + 1
torch.ones(2) + torch.ones(3)
torch.ones(2, 3) @ torch.ones(2, 3)
torch.zeros(3)[5]
torch.cat([torch.ones(2, 2), torch.ones(3, 3)])
torch.nn.Linear(3, 4)(torch.ones(2, 2))
torch.nn.Conv2d(3, 4, 3)(torch.ones(1, 2, 8, 8))
torch.ones(2).backward()
torch.ones(4).view(3, 3)
torch.tensor([1.0]).long().requires_grad_()
torch.load("/no/such/checkpoint.pt")
torch.nn.Module().load_state_dict({"weight": torch.ones(1)})
torch.ones(2, device="cuda:9")
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([5, 1]))
torch.linalg.inv(torch.zeros(2, 2))
torch.distributed.all_reduce(torch.ones(1))
torch.compile(3)
torch.compile(lambda x: x, backend="no-such-backend")(torch.ones(1))
torch.jit.script(lambda x: x.no_such_method())
torch._dynamo.config.no_such_setting = 1
torch.export.export(3, ())
torch.stack([])
torch.randint(5, 2, (3,))
torch.ones(3).item()
bool(torch.ones(3))
list(torch.tensor(3))
sorted([1, "a"])
max([])
next(iter([]))
json.loads("{")
float("x1")
range(3)[9]
(lambda a: a)()
len(3)
assert_false()
exec("def f(:")
b"\\xff".decode()
"x".encode("no-such-encoding")
__import__("subprocess").run(["false"], check=True)
__import__("threading").Thread(target=3, args=4).start()
__import__("socket").create_connection(("127.0.0.1", 1), 0.1)
__import__("decimal").Decimal("x")
__import__("datetime").date(2026, 13, 1)
[0] * -1 + 3
{1, []}
setattr(3, "x", 1)
super().nothing
raise_runtime("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)")
raise_runtime("DataLoader worker (pid 4711) is killed by signal: Killed.")
raise_runtime("Graph optimization finished: 3 graph breaks were avoided by the planner")
raise_runtime("function 'forward' failed")
raise_runtime("the call to forward failed with a graph: break the loop")
raise_runtime("Falling back to eager evaluation of the template")
raise_runtime("Unsupported: operation on read-only file system")
raise_runtime("Reason: connection reset by peer")
"""


def _unrelated() -> list[tuple[str, None]]:
    import torch

    def raise_runtime(text: str) -> None:
        raise RuntimeError(text)

    def assert_false() -> None:
        assert 1 == 2, "not equal"

    found: list[tuple[str, None]] = []
    scope = {"torch": torch, "json": json, "raise_runtime": raise_runtime, "assert_false": assert_false}
    for line in UNRELATED.strip().splitlines():
        try:
            exec(line, dict(scope))
        except BaseException:
            found.append((traceback.format_exc(), None))
    return found


def _registry(labels: dict[str, str]) -> list[tuple[str, str | None]]:
    import torch._dynamo.exc as exc

    registry = json.loads((Path(exc.__file__).parent / "graph_break_registry.json").read_text())
    found: list[tuple[str, str | None]] = []
    for gb_id, versions in registry.items():
        row = versions[0]
        text = exc.format_graph_break_message(
            row["Gb_type"].strip(), row["Context"], row["Explanation"], row["Hints"] or []
        )
        found.append((text, labels.get(gb_id)))
    return found


def _reproduced(labels: dict[str, str], by_type: dict[str, str]) -> list[tuple[str, str | None]]:
    from kintsugi.kb import load, verify

    verify.prepare()
    found: list[tuple[str, str | None]] = []
    for entry in load():
        if entry.reproducer is None:
            continue
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(receive)
            rows: list[tuple[str, str | None]] = []
            with contextlib.suppress(BaseException), contextlib.redirect_stdout(io.StringIO()):
                rows = _run(entry, labels, by_type)
            with os.fdopen(send, "wb") as out:
                pickle.dump(rows, out)
            os._exit(0)
        os.close(send)
        with os.fdopen(receive, "rb") as pipe:
            found += pickle.loads(pipe.read() or pickle.dumps([]))
        os.waitpid(child, 0)
    return found


def _run(entry: Any, labels: dict[str, str], by_type: dict[str, str]) -> list[tuple[str, str | None]]:
    import torch
    from torch._dynamo.utils import counters

    import kintsugi
    from kintsugi import _logs
    from kintsugi.kb import store, verify

    module = verify.load_program(store.REPRODUCERS / entry.reproducer.file)
    problem = getattr(module, entry.reproducer.function)
    backend = getattr(module, "BACKEND", "eager")
    around = getattr(module, "around", lambda run: run())
    rows: list[tuple[str, str | None]] = []
    counters.clear()
    try:
        with verify.dynamo_config(getattr(module, "DYNAMO_CONFIG", {})):
            for call in range(3):
                torch.compile(problem, backend=backend)(*verify.inputs_of(module, call))
    except Exception:
        if entry.category == "attribute_error":
            rows.append((traceback.format_exc(), entry.id))
    for text in dict.fromkeys([*counters["graph_break"], *counters["unimplemented"]]):
        first = text.strip().splitlines()[0]
        label = by_type.get(first)
        prefix = "V1121 12:00:00.123456 4711 torch/x.py:1] [0/0] [__graph_breaks] Graph Break Reason: "
        rows += [(text, label), (prefix + text, label)]
    lines: list[str] = []
    with _logs.collecting(lines), kintsugi.config.patch(getattr(module, "CONFIG", {})):
        compiled = kintsugi.compile(problem, backend=backend)
        for call in range(3):
            with contextlib.suppress(Exception):
                around(lambda call=call: compiled(*verify.inputs_of(module, call)))
    for line in lines:
        codes = [code for code in labels if code.startswith("KTG") and code in line]
        if len(codes) == 1 and len(line) < 2000:
            rows.append((line, labels[codes[0]]))
    return rows


def build() -> list[dict[str, Any]]:
    from kintsugi.kb import load

    labels = {entry.error_code: entry.id for entry in load() if entry.error_code}
    labels |= {member.id: entry.id for entry in load() for member in entry.members}
    import torch._dynamo.exc as exc

    registry = json.loads((Path(exc.__file__).parent / "graph_break_registry.json").read_text())
    by_type = {rows[0]["Gb_type"].strip(): labels[gb] for gb, rows in registry.items() if gb in labels}
    rows = [*_unrelated(), *_registry(labels), *_reproduced(labels, by_type)]
    return [
        {"text": text, "label": label} for text, label in dict.fromkeys((_portable(t), i) for t, i in rows)
    ]


def _portable(text: str) -> str:
    """Without the folders of the machine that built the messages."""
    root = str(Path(__file__).parents[2])
    for folder, name in ((root, "/home/user/project"), (sys.prefix, "/usr"), (sys.base_prefix, "/usr")):
        text = text.replace(folder, name)
    return text


if __name__ == "__main__":
    made = build()
    FILE.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(len(made), "messages,", sum(row["label"] is not None for row in made), "of them with an entry")
