"""The knowledge base: schema, patterns, matching, rendering, and that its figures follow from its evidence."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pydantic")

from hypothesis import given, settings
from hypothesis import strategies as st

from kintsugi import _C
from kintsugi.kb import graph as graphs
from kintsugi.kb import load, model, store
from kintsugi.kb.matching import EntryMatcher, MatcherMissing
from kintsugi.kb.render import remedies, to_html, to_markdown
from kintsugi.kb.statistics import wilson

BASE = load()
MESSAGES = Path(__file__).with_name("kb_messages.json")


@pytest.fixture(scope="module")
def matcher() -> EntryMatcher:
    try:
        return EntryMatcher(BASE)
    except MatcherMissing as error:
        pytest.skip(str(error))


def ids(found) -> list[str]:
    return [item.entry.id for item in found]


def test_all_entries_are_there() -> None:
    assert BASE.problems == []
    codes = {entry.error_code for entry in BASE}
    assert {row["code"] for row in _C.codes()} <= codes
    assert sum(1 for code in codes if code and code.startswith("GB")) >= 60
    assert {
        "pytorch/compile-graph-break-fallback",
        "pytorch/torch-compile-graph-break-fallback",
    } <= BASE.entries.keys()


def test_the_published_schema_is_the_models() -> None:
    assert json.loads(model.SCHEMA_FILE.read_text(encoding="utf-8")) == model.schema()


def test_the_schema_is_valid_and_every_entry_obeys_it() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(model.SCHEMA_FILE.read_text(encoding="utf-8"))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for path in store.ENTRIES.glob("*.json"):
        assert list(validator.iter_errors(json.loads(path.read_text(encoding="utf-8")))) == [], path.name


def test_files_are_as_dumps_writes_them() -> None:
    for entry in BASE:
        assert BASE.files[entry.id].read_text(encoding="utf-8") == entry.dumps(), entry.id


def test_each_pattern_matches_its_own_examples_and_no_others(matcher) -> None:
    for entry in BASE:
        for text in (entry.signature, *entry.examples):
            assert ids(matcher.match_text(text)) == [entry.id], text


@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,40}", fullmatch=True))
@settings(max_examples=50, deadline=None)
def test_both_runtime_errors_with_any_function_name(name: str) -> None:
    try:
        matcher = EntryMatcher(BASE)
    except MatcherMissing as error:
        pytest.skip(str(error))
    for entry_id in ("pytorch/compile-graph-break-fallback", "pytorch/torch-compile-graph-break-fallback"):
        entry = BASE.entries[entry_id]
        for text in (entry.signature, entry.signature_zh, *entry.examples):
            changed = re.sub(r"'[^']*'", f"'{name}'", text)
            found = matcher.match_text(f"Traceback (most recent call last):\n  File\n{changed}\n")
            assert ids(found) == [entry_id] and name in found[0].groups.values()


def test_references_verbatim(matcher) -> None:
    lines = [
        "RuntimeError: torch.compile: 函数 'forward' 因图断裂而失败,回退到 eager 模式。请考虑重写函数以避免"
        "控制流或动态形状。",
        "运行时错误：torch.compile：函数 'forward' 因图断裂失败。回退到 eager 模式。考虑重写函数以避免 Python 控制流。",
    ]
    assert [ids(matcher.match_text(line)) for line in lines] == [
        ["pytorch/compile-graph-break-fallback"],
        ["pytorch/torch-compile-graph-break-fallback"],
    ]


def _half(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0] % 2


@pytest.mark.parametrize("half", [0, 1], ids=["shown", "held-out"])
def test_precision_and_recall(matcher, half: int) -> None:
    rows = [row for row in json.loads(MESSAGES.read_text(encoding="utf-8")) if _half(row["text"]) == half]
    right = wrong = missed = 0
    for row in rows:
        found = set(ids(matcher.match_text(row["text"])))
        wanted = {row["label"]} - {None}
        right += len(found & wanted)
        wrong += len(found - wanted)
        missed += len(wanted - found)
    precision, recall = right / max(1, right + wrong), right / max(1, right + missed)
    print(
        f"{len(rows)} messages, {right + missed} with an entry: precision {precision:.4f}, recall {recall:.4f}"
    )
    assert len(rows) >= 150
    assert precision >= 0.95 and recall >= 0.95


def test_ten_megabytes_in_a_second(matcher) -> None:
    generator = random.Random(0)
    lines = [
        f"2026-01-01 12:00:{i % 60:02} INFO step {i} loss={generator.random():.5f} graph call Unsupported Reason break"
        for i in range(125_000)
    ]
    lines[70_000] = "torch._dynamo.exc.Unsupported: Data-dependent branching"
    lines[90_000] = "[GRAPH_BREAKS] KTG0101 opaque-c-call: call of C function time.sleep"
    data = "\n".join(lines).encode()
    assert len(data) >= 10_000_000
    start = time.perf_counter()
    found = matcher.match_file(io.BytesIO(data))
    elapsed = time.perf_counter() - start
    print(f"{len(data) / 1e6:.1f} MB in {elapsed:.3f} s")
    assert [(item.entry.error_code, item.line) for item in found] == [("GB0170", 70_001), ("KTG0101", 90_001)]
    assert elapsed < 1


@given(st.lists(st.binary(max_size=200), max_size=20))
@settings(max_examples=60, deadline=None)
def test_junk_never_hurts(pieces: list[bytes]) -> None:
    try:
        matcher = EntryMatcher(BASE)
    except MatcherMissing as error:
        pytest.skip(str(error))
    data = b"".join(pieces)
    split = [(m.entry.id, m.line, m.count) for m in matcher.match_pieces(pieces)]
    assert split == [(m.entry.id, m.line, m.count) for m in matcher.match_pieces([data])]


def test_ids_resolve_and_no_entry_stands_alone() -> None:
    made = graphs.graph(BASE)
    assert made.unresolved == []
    linked = {node for a, b, _ in made.edges for node in (a, b)}
    assert linked == set(made.nodes)
    assert graphs.to_dot(made).count("->") == len(made.edges)
    assert graphs.to_mermaid(made).startswith("graph LR")


def default_torch() -> str:
    """Evidence is measured with the default pair."""
    rows = (Path(__file__).parents[2] / "requirements" / "pairs.txt").read_text().splitlines()
    return next(line.split()[2] for line in rows if line[:1] != "#")


def test_figures_follow_from_the_evidence() -> None:
    for entry in BASE:
        subject = "kintsugi" if entry.domain == "kintsugi" else "torch.compile"
        for work in entry.workarounds:
            assert work.cited != bool(work.measured), entry.id
            if work.measured:
                assert work.success_rate == pytest.approx(1 - work.measured[subject].rate, abs=1e-3), entry.id
        for end in entry.dead_ends:
            assert end.cited != bool(end.measured), entry.id
            if end.measured:
                assert end.fail_rate == end.measured[subject].rate, entry.id
        if entry.evidence is None:
            assert entry.confidence == 0 and entry.fix_success_rate is None and entry.notes, entry.id
            continue
        remedies_ = (*entry.workarounds, *entry.dead_ends)
        remedies_ = (*remedies_, *entry.members)
        every = [*entry.evidence.problem.values(), *(m for r in remedies_ for m in r.measured.values())]
        assert entry.evidence_count == sum(m.n for m in every), entry.id
        for found in every:
            low, high = wilson(found.failures, found.n)
            assert found.interval == pytest.approx((low, high), abs=1e-3), entry.id
        assert entry.evidence.problem[subject].failures == 0, f"{entry.id}: the problem does not show"
        assert entry.evidence.versions["torch"].split("+")[0] == default_torch(), entry.id


def test_advice_that_changes_results_or_does_not_help_is_no_advice() -> None:
    """What was measured to fail in any run stands among the dead ends."""
    for entry in BASE:
        for work in entry.workarounds:
            assert not work.measured or work.success_rate == 1, (entry.id, work.action)


def test_all_but_one_entry_was_executed() -> None:
    """No program is known that makes torch 2.13 give the reason GB0066; its entry says what was tried."""
    assert [entry.error_code for entry in BASE if entry.evidence is None] == ["GB0066"]
    executed = [e for e in BASE if e.error_code and e.error_code.startswith("GB") and e.evidence is not None]
    assert len(executed) >= 60


def test_each_of_torchs_reasons_is_shown_by_its_program_or_says_why_not() -> None:
    members = [(entry, member) for entry in BASE for member in entry.members]
    assert len({member.id for _, member in members}) == len(members) >= 370
    for entry, member in members:
        assert (member.function is None) == bool(member.note), member.id
        if member.function is not None:
            assert member.measured["torch.compile"].failures == 0, f"{entry.id}: {member.id} does not show"
            assert BASE.find(member.id) is entry
    assert sum(member.function is not None for _, member in members) >= 200


def test_torchs_registry_is_covered() -> None:
    """The page is what the script makes with the default torch, and at least 90 % of what applies has an entry."""
    torch = pytest.importorskip("torch")
    if torch.__version__.split("+")[0] != default_torch():
        pytest.skip("the page is made with the default torch")
    root = Path(__file__).parents[2]
    script = root / "scripts" / "kb_coverage.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = (root / "docs" / "internals" / "kb-coverage.md").read_text(encoding="utf-8")
    share = re.search(r"grouped under one \| \d+ \(([\d.]+) %\)", text)
    assert share is not None and float(share[1]) >= 90


def test_documentation_is_named_and_there() -> None:
    root = Path(__file__).parents[2]
    for entry in BASE:
        if "://" in entry.official_doc_url:
            continue
        page = root / entry.official_doc_url
        lines = page.read_text(encoding="utf-8").splitlines()
        headings = [line.lstrip("#").strip() for line in lines if line[:1] == "#"]
        assert entry.official_doc_section in headings, (entry.id, entry.official_doc_section)


def test_nothing_is_empty_without_a_reason() -> None:
    for entry in BASE:
        assert entry.os_specific and all(version.behavior_change for version in entry.versions), entry.id
        for field in ("dead_ends", "workarounds", "reproducer"):
            assert bool(getattr(entry, field)) != (field in entry.left_empty), (entry.id, field)
        if entry.evidence is not None:
            assert "not run" not in entry.os_specific[entry.evidence.versions["system"]], entry.id


def test_the_blend_is_no_cure() -> None:
    entry = BASE.find("GB0170")
    blend = next(end for end in entry.dead_ends if "arithmetically" in end.action)
    assert blend.fail_rate and "NaN" in blend.why_fails
    masked = next(end for end in entry.dead_ends if "masked_select" in end.action)
    assert masked.fail_rate == 1


def test_wilson() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(5, 10)
    assert low == pytest.approx(0.2366, abs=1e-3) and high == pytest.approx(0.7634, abs=1e-3)
    assert wilson(0, 9)[0] == 0 and wilson(9, 9)[1] == 1


@pytest.mark.parametrize("language", ["en", "zh"])
def test_rendering(language) -> None:
    for entry in BASE:
        text = to_markdown(entry, language)
        assert entry.id in text and ": None" not in text and "None %" not in text
        works, _ = remedies(entry, language)
        assert all(action and share for action, share in works)
    html = to_html(BASE.find("GB0170"), language)
    assert "<h1>" in html and "<script" not in html


def test_broken_entries_are_named_and_the_rest_is_used(tmp_path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe")
    (tmp_path / "c.json").write_text(json.dumps({"id": "x/y"}))
    good = json.loads(BASE.find("GB0170").dumps())
    (tmp_path / "d.json").write_text(json.dumps(good))
    good.update(id="mine/own", regex="MY-OWN-ERROR", examples=["MY-OWN-ERROR"], root_cause_type="generic")
    (tmp_path / "e.json").write_text(json.dumps(good))
    good["root_cause_type"] = "mine"
    (tmp_path / "f.json").write_text(json.dumps(good))
    base = load([tmp_path, tmp_path / "missing"])
    assert len(base) == len(BASE) + 1 and "mine/own" in base.entries
    assert len(base.problems) == 6
    for name in ("a.json", "b.json", "c.json", "d.json", "e.json", "missing"):
        assert sum(name in problem and "\n" not in problem for problem in base.problems) == 1, base.problems


def test_a_pattern_that_re2_refuses_is_named(tmp_path) -> None:
    entry = json.loads(BASE.find("GB0170").dumps())
    entry.update(id="mine/own", regex="(?=lookahead)")
    (tmp_path / "own.json").write_text(json.dumps(entry))
    try:
        matcher = EntryMatcher(load([tmp_path]))
    except MatcherMissing as error:
        pytest.skip(str(error))
    assert len(matcher.problems) == 1 and "own.json" in matcher.problems[0]
    assert ids(matcher.match_text("KTG0101 x")) == ["kintsugi/ktg0101-opaque-c-call"]


def test_unknown_entries_get_a_hint() -> None:
    with pytest.raises(store.UnknownEntry, match="Did you mean"):
        BASE.find("kintsugi/ktg0101-opaque-call")
    assert BASE.find("ktg0101") is BASE.find("KTG0101") is BASE.find("ktg0101-opaque-c-call")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["GB0170", "KTG0101"])
def test_verify_gets_the_figures_that_are_written_down(name: str) -> None:
    from kintsugi.kb import verify

    verify.prepare()
    entry = BASE.find(name)
    fresh = verify.verify_in_child(entry)
    assert fresh.evidence is not None and entry.evidence is not None
    assert fresh.evidence.problem == entry.evidence.problem
    assert [w.measured["torch.compile"] for w in fresh.workarounds] == [
        w.measured["torch.compile"] for w in entry.workarounds
    ]
    assert [d.fail_rate for d in fresh.dead_ends] == [d.fail_rate for d in entry.dead_ends]
