"""What writes the figures of the documents (bench/figures), on recorded results; when a call counts as compiled."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import script_loader

from bench import memory, readiness
from bench.deploy.systems import SYSTEMS
from bench.figures import __main__ as figures
from bench.figures import blocks, book, tables

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "commit": "abc1234",
    "started": "2026-11-24 10:00:00 UTC",
    "command": "python -m bench.run --only inference --quick --output out.json",
    "threads": 1,
}
DEPLOYED = {
    "seconds": 0.5, "cpu_s": 0.0123, "speedup": 1.5, "difference": 1e-7, "first_s": 2.5, "start_s": 4.5, "ready_s": 2.5,
    "resident_mb": 400.0, "peak_mb": 410.0, "compile_peak_mb": 500.0, "beyond_mb": 3.0,
}  # fmt: skip


def result(**parts: Any) -> dict[str, Any]:
    return {"environment": dict(ENVIRONMENT), **parts}


def deployed() -> dict[str, Any]:
    rows = {"eager": dict(DEPLOYED), "native": DEPLOYED | {"cpu_s": 0.005, "native_segments": 2}}
    rows["openvino"] = {"error": "Missing: openvino is not installed; `make peers` installs it"}
    return result(inference={"vit": rows})


def small() -> dict[str, Any]:
    """A row of every other part."""
    both = {name: {"seconds": 1e-5, "us": 12.5, "excess_us": 1.25, "speedup": 2.0, "first_s": 0.01, "share": 0.5}
            for name in ("eager", "kintsugi", "kintsugi native", tables.PEER, tables.INDUCTOR)}  # fmt: skip
    moved = copy.deepcopy(both)
    moved["eager"]["bytes"] = 128_000_000
    guards = {f"{tables.PEER}, kept results": {"us": 200.0}, "kintsugi, kept results": {"us": 99.0},
              "kintsugi, call less operators": {"us": 70.0},
              "kintsugi native, call less native segments": {"us": 33.0}}  # fmt: skip
    windows = {"windows": [0.9, 1.1], "first": 4.0, "worst": 0.9, "steady": 1.1, "differs": None}
    sizes = {name: {"counts": {"trace_count": 2}, "lost_s": 0.5} for name in both if name != "eager"}
    return result(
        tiny={"rows": both},
        executor={"rows": both},
        guards={"bert-12": {"rows": guards}},
        breaks={"a lock": {"rows": both}, "a warning": {"failed": "crash", "why": "SIGSEGV"}},
        shapes={"BERT": {"rows": sizes}},
        kernels={"peaks": {"rows": {"bandwidth": 1e10}}, "gelu": {"rows": both}},
        kernels_avx2={"peaks": {"rows": {"bandwidth": 1e10}}, "gelu": {"rows": both}},
        beside={
            "calls": {
                "rows": {
                    "there": "fafaf55",
                    "cases": {
                        "x + 1, replay": {"here_s": 1e-6, "there_s": 1e-6, "quartiles": [0.9, 1.0, 1.1]},
                        "x + 1, native": {"here_s": 2e-6, "there_s": 1e-6, "quartiles": [1.9, 2.0, 2.1]},
                    },
                }
            }
        },
        bandwidth={"peaks": {"rows": {"bandwidth": 1e10}}, "gelu, large": {"rows": moved}},
        training={"sgd": {"rows": both}},
        programs={
            "a file": {
                "rows": {"kintsugi native": windows, "kintsugi": {"failed": "crash", "why": "SIGSEGV"}}
            },
            "a text": {"rows": {"kintsugi native": windows | {"worst": 0.96, "differs": 3}}},
        },  # fmt: skip
    )


def cells(table: str, beginning: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {beginning}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def column(table: str, title: str) -> int:
    return [cell.strip() for cell in table.splitlines()[0].strip("|").split("|")].index(title)


def test_rows_of_inference() -> None:
    known: book.Book = {}
    assert book.record(known, deployed(), "abc1234") == ["inference/vit"]
    table = tables.bodies(known)["inference"]
    row = cells(table, "ViT")
    assert row[column(table, "eager")] == "12.3" and row[column(table, "native")] == "5"
    assert (
        row[column(table, "OpenVINO")] == "fails" and "OpenVINO: Missing: openvino is not installed" in table
    )
    assert row[-1] == "`abc1234`, 2026-11-24"
    detail = tables.bodies(known)["processes"]
    assert "| 1e-07 |" in detail and "12.3 | 500 | 1.5" in detail
    assert '`make bench ARGS="--only inference --quick"`' in table


def test_a_model_that_native_code_refuses_is_called_replayed() -> None:
    known: book.Book = {}
    taken = deployed()
    taken["inference"]["vit"]["native"]["native_segments"] = 0
    book.record(known, taken, "abc1234")
    assert "5 (replayed)" in tables.bodies(known)["inference"]


def test_every_block_says_where_its_rows_are_from(tmp_path: Path) -> None:
    known: book.Book = {}
    book.record(known, deployed(), "abc1234")
    book.record(known, small(), "abc1234")
    known["classes/transformers"] = {"figures": {"sampled": 340, "excluded": 152, "ran": 188}} | book.source(
        result(), "abc1234"
    )
    made = tables.bodies(known)
    assert made.keys() == tables.BLOCKS.keys()
    text = "".join(f"<!-- BEGIN figures {name} -->\n<!-- END figures -->\n" for name in made)
    (tmp_path / "README.md").write_text(blocks.write(text, made))
    checker = script_loader.load("check_docs")
    assert list(checker.check_figures(tmp_path / "README.md", tmp_path)) == []
    for name, body in made.items():
        assert len([line for line in body.splitlines() if line.startswith("|")]) >= 3, name
    overhead = made["overhead"]
    assert cells(overhead, "bert-12: a call less")[1:6] == ["", "", "70", "", "33"]
    kept = made["kept_results"]
    row = cells(kept, "bert-12")
    assert (row[column(kept, "torch.compile")], row[column(kept, "Kintsugi")]) == ("200", "99")
    assert cells(made["programs"], "1 of 2 programs")[1:5] == ["2.00; 2.00"] * 4
    assert cells(made["bandwidth"], "gelu")[1:3] == ["128", "50%"]
    assert cells(made["beside"], "calls")[1:4] == ["2", "1.414", "x + 1, native: 2.00 (1.90 to 2.10)"]
    assert cells(made["windows"], "native")[1:6] == ["2 of 2", "1", "1", "2", "1.10; 1.10"]
    assert cells(made["classes"], "transformers")[1:4] == ["340", "152", "188"]


def test_rows_that_a_run_has_not_measured_keep_commit_and_date() -> None:
    known: book.Book = {}
    book.record(known, small(), "abc1234")
    later = result(tiny={"rows": {"eager": {"seconds": 1e-6}}})
    later["environment"] |= {"commit": "def5678", "started": "2026-12-01 10:00:00 UTC"}
    assert book.record(known, later, "def5678") == ["tiny"]
    table = tables.bodies(known)["overhead"]
    assert cells(table, "`x + 1`")[-1] == "`def5678`, 2026-12-01"
    assert cells(table, "one of a hundred")[-1] == "`abc1234`, 2026-11-24"


def test_runs_of_one_model_each_are_one_command() -> None:
    known: book.Book = {}
    for name in ("vit", "minilm", "vit"):
        taken = deployed()
        taken["inference"] = {name: taken["inference"]["vit"]}
        taken["environment"]["command"] = f"python -m bench.run --only inference --models {name} --rounds 7"
        book.record(known, taken, "abc1234")
    assert (
        '`make bench ARGS="--only inference --models vit,minilm --rounds 7"`.'
        in tables.bodies(known)["inference"]
    )


@pytest.mark.parametrize("block", ["overhead", "programs"])
def test_native_stands_beside_inductor_and_what_was_not_measured_is_empty(block: str) -> None:
    known: book.Book = {}
    taken = small()
    for entry in (taken["tiny"], taken["executor"], *taken["breaks"].values(), *taken["shapes"].values()):
        entry.get("rows", {}).pop(tables.INDUCTOR, None)
    book.record(known, taken, "abc1234")
    table = tables.bodies(known)[block]
    native, inductor = column(table, "native"), column(table, "inductor")
    assert native == inductor + 1
    assert column(table, "replay") == column(table, "torch.compile, backend eager") + 1
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line[:2] == "| "
    ][1:]
    assert len(rows) == 3 and all(row[inductor] == "" and row[native] != "" for row in rows)


def test_a_result_of_another_commit_keeps_that() -> None:
    known: book.Book = {}
    book.record(known, deployed(), "def5678")
    assert known["inference/vit"]["commit"] == "abc1234"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("commit", "", "without a commit"),
        ("commit", "unknown", "without a commit"),
        ("commit", "abc1234-modified", "commit them first"),
        ("started", "", "without a date"),
        ("command", "", "without its command"),
    ],
)
def test_what_has_no_origin_is_refused(field: str, value: str, said: str) -> None:
    known: book.Book = {}
    taken = deployed()
    taken["environment"][field] = value
    with pytest.raises(book.Refused, match=said):
        book.record(known, taken, "abc1234")
    assert known == {}


def test_a_book_with_a_row_of_no_origin_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    known: book.Book = {}
    book.record(known, deployed(), "abc1234")
    book.save(known, path)
    assert book.load(path) == known
    del known["inference/vit"]["date"]
    book.save(known, path)
    with pytest.raises(book.Refused, match="inference/vit has no commit, date or command"):
        book.load(path)


def test_markers() -> None:
    text = "a\n<!-- BEGIN figures one -->\nold\n<!-- END figures -->\nb <!-- BEGIN demo -->\n"
    assert blocks.names(text) == ["one"]
    once = blocks.write(text, {"one": "| new |\n"})
    assert once == text.replace("old", "| new |") and blocks.write(once, {"one": "| new |\n"}) == once
    with pytest.raises(blocks.NoBlock, match="one"):
        blocks.write(text, {"two": ""})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("| a | commit, date |\n|---|---|\n| 1 | `abc1234`, 2026-11-24 |\n", "without its command"),
        (
            "| a | commit, date |\n|---|---|\n| 1 | 2026-11-24 |\n\nBy `make bench`.\n",
            "without commit and date",
        ),
        (
            "| a | commit, date |\n|---|---|\n| 1 | `abc1234` |\n\nBy `make bench`.\n",
            "without commit and date",
        ),
        ("nothing\n", "without a row"),
    ],
)
def test_the_check_of_documents_finds(tmp_path: Path, body: str, said: str) -> None:
    path = tmp_path / "a.md"
    path.write_text(f"<!-- BEGIN figures x -->\n{body}<!-- END figures -->\n")
    assert any(said in problem for problem in script_loader.load("check_docs").check_figures(path, tmp_path))


def test_the_check_of_documents_finds_a_block_without_end(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("<!-- BEGIN figures x -->\n<!-- BEGIN figures y -->\n<!-- END figures -->\n")
    (problem,) = script_loader.load("check_docs").check_figures(path, tmp_path)
    assert "no end" in problem


def test_the_check_of_documents_finds_a_demo_without_commit(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    end = "Of commit `abc1234`, 2026-11-24.\n<!-- END demo output -->\n"
    check = script_loader.load("check_docs").check_figures
    path.write_text(f"<!-- BEGIN demo output: x -->\n1 ms\n{end}")
    assert list(check(path, tmp_path)) == []
    path.write_text(f"<!-- BEGIN demo output: x -->\n1 ms\n{end[end.index('<') :]}")
    assert len(list(check(path, tmp_path))) == 1


def test_the_documents_are_what_the_book_says() -> None:
    made = tables.bodies(book.load(figures.BOOK))
    for document in figures.DOCUMENTS:
        text = document.read_text()
        assert blocks.names(text) and blocks.write(text, made) == text, (
            f"run make figures ARGS=--write: {document}"
        )
    assert not re.search(r"<!-- BEGIN figures -->", (ROOT / "README.md").read_text())


def seen(*rows: tuple[int, int, int]) -> list[readiness.Seen]:
    """Two segments; of each call: ready, refused, native runs so far."""
    return [readiness.Seen(float(k), 2, *row) for k, row in enumerate(rows)]


def test_a_call_is_compiled_when_the_choice_is_made() -> None:
    by_turns = [
        (0, 0, 0),
        (2, 0, 0),
        (2, 0, 2),
        (2, 0, 2),
        (2, 0, 4),
        (2, 0, 4),
        (2, 0, 6),
        (2, 0, 8),
        (2, 0, 10),
    ]
    found = readiness.judge(seen(*by_turns))
    assert (found.seconds, found.first_native, found.native_segments) == (6.0, 2.0, 2)


def test_a_segment_that_is_left_to_replay() -> None:
    found = readiness.judge(seen((0, 0, 0), (2, 0, 2), (2, 0, 2), (2, 0, 4), (1, 1, 5), (1, 1, 6), (1, 1, 7)))
    assert (found.seconds, found.native_segments) == (4.0, 1)
    found = readiness.judge(seen((0, 0, 0), (2, 0, 2), (2, 0, 2), (0, 2, 2), (0, 2, 2)))
    assert (found.seconds, found.first_native, found.native_segments) == (3.0, 1.0, 0)


@pytest.mark.parametrize("rows", [[], [(1, 0, 1)], [(2, 0, 2), (1, 0, 4)]])
def test_a_call_that_waits_is_not_compiled(rows: list[tuple[int, int, int]]) -> None:
    with pytest.raises(readiness.NeverCompiled, match="wait"):
        readiness.judge(seen(*rows))


def test_native_code_runs_when_it_is_said_to_be_ready() -> None:
    import torch

    import kintsugi

    def fn(x: Any) -> Any:
        for k in range(12):
            x = (x - x.amax(k % 2, keepdim=True)) * 0.5
        return x

    compiled, x = kintsugi.compile(fn, backend="native"), torch.randn(64, 64)
    with torch.no_grad():
        found = readiness.until_compiled(lambda: compiled(x), compiled.stats)
        before = compiled.stats().native_runs
        compiled(x)
        assert found.native_segments == compiled.stats().native_runs - before
        assert found.first_native is not None and 0 < found.first_native <= found.seconds
    with pytest.raises(readiness.NeverCompiled, match="nothing to compile"):
        alone = kintsugi.compile(fn, backend="eager")
        readiness.until_compiled(lambda: alone(x), alone.stats)


def test_memory_of_the_process() -> None:
    memory.reset_peak()
    before = memory.peak()
    held = bytearray(64 << 20)
    assert memory.peak() - before > 60 << 20 and memory.resident() > 60 << 20
    del held
    memory.reset_peak()
    assert memory.peak() < before + (32 << 20)
    assert memory.last_level_cache() >= 1 << 18


def test_work_of_a_call() -> None:
    import torch

    import kintsugi
    from kintsugi import _C

    compiled, x = kintsugi.compile(lambda x: (x @ x).relu() + 1, backend="eager"), torch.randn(200, 200)
    compiled(x)
    whole, work, spans = _C.time_work(compiled, x)
    assert 0 < work < whole and spans == 3 and _C.clock_cost() > 0
    assert _C.time_work(lambda: None)[1:] == (0, 0)


def test_the_allocator_of_runs_serves_who_asks_for_it() -> None:
    import torch

    from kintsugi import _C

    before = _C.run_memory()["pool_used"]
    held = torch.empty(1 << 20)
    assert _C.run_memory()["pool_used"] == before
    held = _C.call_in_run_memory(torch.empty, 1 << 20)
    assert _C.run_memory()["pool_used"] - before >= held.numel() * 4
    with pytest.raises(TypeError, match="empty"):
        _C.call_in_run_memory(torch.empty, "no size")


def test_a_peer_that_is_missing_says_how_to_install_it() -> None:
    from bench.deploy import systems

    with pytest.raises(systems.Missing, match="make peers"):
        systems.load("no_such_package_of_peers")
    assert {
        "eager",
        "inductor",
        "freezing",
        "max-autotune",
        "onnxruntime",
        "openvino",
        "native",
    } <= SYSTEMS.keys()


@pytest.mark.slow
@pytest.mark.models
def test_processes_take_turns() -> None:
    from bench.deploy import inference

    pytest.importorskip("transformers")
    rows = inference.measure(
        "mobilenet-v2", ["eager", "replay"], rounds=2, threads=1, target=0.05, allowed=300
    )
    assert {name: row.get("error") for name, row in rows.items()} == {"eager": None, "replay": None}
    assert rows["eager"]["speedup"] == 1 and rows["replay"]["difference"] == 0
    for row in rows.values():
        assert 0 < row["first_s"] < row["start_s"] and row["first_s"] <= row["ready_s"]
        assert row["built_mb"] < row["resident_mb"] <= row["peak_mb"]
