"""The checks of `make lint` (scripts/check_layers.py, check_identity.py, check_statics.py, ...); docstrings."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from script_loader import load

import kintsugi

ROOT = Path(__file__).resolve().parents[2]


check_layers = load("check_layers")
check_identity = load("check_identity")
check_sizes = load("check_sizes")
check_statics = load("check_statics")
check_references = load("check_references")
check_comments = load("check_comments")
check_methods = load("check_methods")
check_docs = load("check_docs")
api_reference = load("api_reference")


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if (std::string_view(type->tp_name) == name) skip();\n", "tp_name"),
        ("const char* name = type->tp_name;\n", "tp_name"),
        ('return file.find("/torch/") != npos;\n', "/torch/"),
        ("\nreturn code->co_filename;\n", "co_filename"),
        ("return pyapi::typeNameOf(object);\n", "pyapi::typeNameOf"),
        ('get(object, "__module__");\n', "__module__"),
    ],
)
def test_a_decision_by_name_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    write(tmp_path, "csrc/capture/x.cc", "rec.abort(code, {Py_TYPE(x)->tp_name});  // by tp_name\n" + text)
    problems = [p for p in check_identity.check_tree(tmp_path) if "x.cc" in p]
    line = 2 + text.startswith("\n")
    assert problems == [f"csrc/capture/x.cc:{line}: {expected} outside a message"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('skip = type(x).__name__ == "Linear"\n', "__name__"),
        ('skip = cls.__module__.startswith("torch.")\n', "__module__"),
        ("folder = torch.__file__\n", "__file__"),
        ("skip = code.co_filename in known\n", "co_filename"),
        ('name = getattr(f, "__qualname__", "")\n', "__qualname__"),
        ("skip = code.co_name in known\n", "co_name"),
    ],
)
def test_a_decision_by_name_is_refused_in_python(tmp_path: Path, text: str, expected: str) -> None:
    told = (
        'raise TypeError("no " + type(x).__name__)\nprint(f"{x.__qualname__}", __name__)\nf.__name__ = "g"\n'
    )
    for name in ("x.py", "cli/y.py"):
        write(tmp_path, f"python/kintsugi/{name}", told + text)
    problems = [p for p in check_identity.check_tree(tmp_path) if "/x.py" in p or "/y.py" in p]
    assert problems == [f"python/kintsugi/x.py:4: {expected} outside a message"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('  static PyObject* m = PyImport_ImportModule("enum");\n', "PyImport_ImportModule"),
        (
            '  static auto* m = [] {\n    return PyObject_GetAttrString(m, "x");\n  }();\n',
            "PyObject_GetAttrString",
        ),
        ('  static PyCodeObject* code = innerCode("functools", "f", "g");\n', "innerCode"),
        ("  static const Layout found{findLayout()};\n", "findLayout"),
        ('  static PyObject* n = PyUnicode_InternFromString("n");\n', ""),
        ("  static auto* all = new std::vector<int>();\n", ""),
        ("  static constinit Lazy<PyObject*> slot;\n  return slot.get([] { return find(); });\n", ""),
        ("  static bool isOpen(int x) { return find(x); }\n", ""),
        ("  // static PyObject* m = find();\n", ""),
    ],
)
def test_statics_do_not_run_python(tmp_path: Path, text: str, expected: str) -> None:
    write(tmp_path, "csrc/capture/x.cc", f"int f() {{\n{text}}}\n")
    problems = check_statics.check_tree(tmp_path)
    assert [p.split(" in ")[0] for p in problems] == (
        [f"csrc/capture/x.cc:2: {expected}()"] if expected else []
    )


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("torch_steps.cc", "bool TorchSteps::accepts(int x) {\n  return x;\n}\n", ""),
        ("torch_steps_symbolic.cc", "bool TorchSteps::accepts(int x) { return x; }\n", ""),
        ("calls/support.cc", "bool TorchSteps::accepts(int x) {\n  return x;\n}\n", "TorchSteps::accepts"),
        ("steps.cc", "bool TorchSteps::accepts() { return true; }\n", "TorchSteps::accepts"),
        ("guardsman.cc", "Guards::Guards(int x) : x_(x) {}\n", "Guards::Guards"),
        ("aside.cc", "Guards::~Guards() { x_ = 0; }\n", "Guards::~Guards"),
        ("aside.cc", "Guards& Guards::operator=(int x) { return *this; }\n", "Guards::operator="),
        ("aside.cc", "std::vector<int> f(Guards::Kind kind) { return {}; }\n", ""),
        ("aside.cc", "struct Aside {\n  int f() { return Guards::count(); }\n};\n", ""),
        ("aside.cc", "int f() {\n  return Guards::count();\n}\n", ""),
    ],
)
def test_a_method_stands_in_a_file_of_its_class(tmp_path: Path, name: str, text: str, expected: str) -> None:
    write(tmp_path, f"csrc/capture/{name}", f"namespace kintsugi::capture {{\n\n{text}\n}}\n")
    problems = check_methods.check_tree(tmp_path)
    assert [p.split(" is not")[0] for p in problems] == (
        [f"csrc/capture/{name}:3: {expected}"] if expected else []
    )


def test_an_exception_for_methods_that_is_not_needed_is_found(tmp_path: Path) -> None:
    write(tmp_path, "csrc/capture/tables/overlays.cc", "void Overlay::f() {}\n")
    assert check_methods.check_tree(tmp_path) == [
        "check_methods.py: no method of WrittenEntries is in csrc/capture/tables/overlays.cc"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PyObject* nameOf(PyObject* object);\n", "nameOf() returns a raw pointer"),
        ("// The name: a new reference.\nPyObject* nameOf(PyObject* object);\n", ""),
        (
            "// The name and its file, borrowed.\nPyObject* nameOf(PyObject*);\nPyObject* fileOf(PyObject*);\n",
            "",
        ),
        ("// The name.\nPyObject* nameOf(PyObject*);\n\nPyObject* fileOf();  // borrowed\n", "nameOf()"),
        ("pyapi::Ref<> nameOf(PyObject* object);\n", ""),
        ("void keep(const Ref<>& object);\n", "const Ref<>& object)"),
        ("void keep(Ref<> object);\n", ""),
        ("#define CHECK(x) x\n", "the macro CHECK has no prefix"),
        ("#define KINTSUGI_X(x) x\n", ""),
    ],
)
def test_a_signature_says_who_owns(tmp_path: Path, text: str, expected: str) -> None:
    write(tmp_path, "csrc/runtime/x.h", "// A header.\n#pragma once\n\n" + text)
    problems = check_references.check_tree(tmp_path)
    assert len(problems) == bool(expected) and all(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("// `count`: how many.\nvoid grow(size_t count);\n", ""),
        ("// `seen`: how many.\nvoid grow(size_t count);\n", "`seen`"),
        ("void grow(size_t count);  // by `more`\n", "`more`"),
        ("// `count` once, and `gone`\n// twice.\nvoid grow(size_t count);\n", "`gone`"),
        ("// `bump` is of the file that implements it.\nvoid grow();\n", ""),
        ("// `Other` is of what it includes.\nvoid grow();\n", ""),
        ("// `self`, `__len__` and `None` are Python's, `KTG_LEVEL` is nobody's.\n", "`KTG_LEVEL`"),
        ("// KTG_HOME is read in Python: `KTG_HOME`.\n", ""),
        ('// Text of the IR: `prod`.\nconst char* text = "aten.prod";\n', ""),
        ("//   x.add_(y)\n//\n// Writes to `x`.\n", ""),
        ("// `x.add_(y)` writes to `x`, not to `z`.\n", "`z`"),
        ("// See in/other.h and csrc/in/other.h.\n", ""),
        ("// See in/none.h.\n", "in/none.h, which does not exist"),
        ("// CPython's Objects/dictobject.h has it.\n", ""),
        ('const char* path = "in/none.h";\nconst char* url = "//`x`";\n', ""),
    ],
)
def test_comments_name_what_is_there(tmp_path: Path, text: str, expected: str) -> None:
    write(tmp_path, "csrc/in/x.h", '// A header.\n#pragma once\n\n#include "in/other.h"\n\n' + text)
    write(tmp_path, "csrc/in/x.cc", "void bump() {}\n")
    write(tmp_path, "csrc/in/other.h", "struct Other {};\n")
    write(tmp_path, "csrc/in/far.cc", "void gone(int seen, int more, int z);\n")
    write(tmp_path, "python/kintsugi/x.py", 'os.environ.get("KTG_HOME")\n')
    problems = check_comments.check_tree(tmp_path)
    assert len(problems) == bool(expected) and all(expected in problem for problem in problems), problems


def test_rows_of_comments_fit_into_the_line(tmp_path: Path) -> None:
    """clang-format leaves them alone, so that it does not join the rows of a table."""
    config = (ROOT / ".clang-format").read_text()
    assert f"ColumnLimit: {check_comments.COLUMNS}\n" in config and 'CommentPragmas: "^ {2}"' in config
    row = "//   name   " + "x" * 97
    write(tmp_path, "csrc/in/x.h", f"// A header.\n//\n{row}\n//   {row}y\n#pragma once\n")
    write(tmp_path, "csrc/in/x.def", f"//   {row}y\n")  # is not formatted
    (problem,) = check_comments.check_tree(tmp_path)
    assert problem.startswith("csrc/in/x.h:4: ") and "110 columns" in problem


def test_signatures_of_the_recorder_and_macros_of_tests_are_looked_at(tmp_path: Path) -> None:
    write(tmp_path, "csrc/capture/record/x.cc", "void keep(const Ref<>& object);\n")
    write(tmp_path, "csrc/ir/x.cc", "void keep(const Ref<>& object);\n")  # knows no Python
    write(tmp_path, "tests/unit/recording/x.h", "void keep(const Ref<>& object);\n#define CHECK(x) x\n")
    write(tmp_path, "bench/micro/x.cc", "#define ROUNDS 3\n#define KTG_ROUNDS 3\n")
    found = [problem.split(": ")[0] for problem in check_references.check_tree(tmp_path)]
    assert sorted(found) == [
        "bench/micro/x.cc:1",
        "csrc/capture/record/x.cc:1",
        "tests/unit/recording/x.h:1",
        "tests/unit/recording/x.h:2",
    ]


def test_only_one_place_catches(tmp_path: Path) -> None:
    write(tmp_path, "csrc/layers.toml", (ROOT / "csrc/layers.toml").read_text())
    caught = "void f() {\n  try {\n    g();\n  } catch (const std::exception& error) {\n  }\n}\n"
    write(tmp_path, "csrc/driver/x.cc", caught)
    write(tmp_path, "csrc/support/x.cc", caught)
    (problem,) = [p for p in check_layers.check_tree(tmp_path) if "a handler" in p]
    assert problem.startswith("csrc/driver/x.cc:4: ")


LAYERS = """
[layers]
support = []
ir = ["support"]
pyapi = ["support"]
[external]
"torch/" = ["pyapi"]
[words]
PY_VERSION_HEX = ["pyapi"]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path, "csrc/layers.toml", LAYERS)
    write(tmp_path, "csrc/support/a.h", "#include <vector>\n")
    write(tmp_path, "csrc/ir/b.h", '#include "support/a.h"\n#include "ir/b.h"\n')
    return tmp_path


def test_private_headers_are_not_included_through_others(tree: Path) -> None:
    write(tree, "csrc/layers.toml", LAYERS + '[private]\n"ir/hidden.h" = ["ir/users"]\n')
    write(tree, "csrc/ir/hidden.h", "#include <vector>\n")
    write(tree, "csrc/ir/open.h", '#include "ir/hidden.h"\n#include "ir/open.h"\n')
    write(tree, "csrc/ir/users/good.cc", '#include "ir/b.h"\n')
    assert check_layers.check_tree(tree) == []
    write(tree, "csrc/ir/users/bad.cc", '#include "ir/open.h"\n')
    assert check_layers.check_tree(tree) == [
        "csrc/ir/users/bad.cc: ir/users/ may not include ir/hidden.h, nor through others"
    ]


def test_operators_are_named_in_few_files_of_the_package(tree: Path) -> None:
    write(tree, "csrc/layers.toml", LAYERS + '[python]\n"python/kintsugi/_a.py" = "a language of its own"\n')
    write(tree, "python/kintsugi/_a.py", 'NAMES = ("aten::Int",)\n')
    write(tree, "python/kintsugi/_b.py", 'text = "see aten.add"  # "aten.add"\n')
    assert check_layers.check_tree(tree) == []
    write(tree, "python/kintsugi/_c.py", 'x = 1\nname = "aten.add.Tensor"\n')
    assert check_layers.check_tree(tree) == [
        'python/kintsugi/_c.py:2: "aten.add.Tensor" may only be used in python/kintsugi/_a.py'
    ]


def test_private_headers_are_kept_from_single_files(tree: Path) -> None:
    write(tree, "csrc/layers.toml", LAYERS + '[private]\n"ir/hidden.h" = ["ir/part"]\n')
    write(tree, "csrc/ir/hidden.h", "#include <vector>\n")
    missing = "csrc/layers.toml: [private] names ir/part, which does not exist"
    assert check_layers.check_tree(tree) == [missing]
    write(tree, "csrc/ir/part_of_more.cc", '#include "ir/hidden.h"\n')
    write(tree, "csrc/ir/part.h", '#include "ir/b.h"\n')
    assert check_layers.check_tree(tree) == []
    write(tree, "csrc/ir/part.cc", '#include "ir/hidden.h"\n')
    assert check_layers.check_tree(tree) == [
        "csrc/ir/part.cc: ir/part may not include ir/hidden.h, nor through others"
    ]


@pytest.mark.parametrize("text", ['f("torch.nn");', 'KTG_KNOWN(kX, "torch:x", kAlways)', 'f("torch");'])
def test_only_torchapi_has_tables_of_torchs_objects(tmp_path: Path, text: str) -> None:
    rules = (ROOT / "csrc" / "layers.toml").read_text()
    write(tmp_path, "csrc/layers.toml", rules)
    for name, wrong in [("pyapi/x.def", True), ("torchapi/x.def", False)]:
        path = write(tmp_path, f"csrc/{name}", f"// torch:x\n{text}\n")
        assert bool(list(check_layers.check_file(path, tmp_path / "csrc", tomllib.loads(rules)))) == wrong


@pytest.mark.parametrize(
    "text", ["RecordContext& rec_;", "RecordContext* const rec_;", "std::unique_ptr<RecordContext> x;"]
)
def test_no_part_of_the_recorder_holds_the_context(tmp_path: Path, text: str) -> None:
    rules = (ROOT / "csrc" / "layers.toml").read_text()
    write(tmp_path, "csrc/layers.toml", rules)
    for name, held in [
        ("capture/part.h", True),
        ("capture/recorder.h", False),
        ("capture/record/half.h", False),
    ]:
        path = write(tmp_path, f"csrc/{name}", f"class A {{\n  {text}\n}};\nvoid f(RecordContext& rec);\n")
        problems = list(check_layers.check_file(path, tmp_path / "csrc", tomllib.loads(rules)))
        assert len(problems) == (1 if held else 0)


FEATURES = """
kintsugi_torch_has(HEADERS c10/core/GradMode.h "f()")
kintsugi_torch_has(NODES torch/csrc/autograd/function.h "g()")
"""


def test_features_of_torch_are_looked_for_and_asked_for(tree: Path) -> None:
    write(tree, "cmake/TorchFeatures.cmake", FEATURES)
    write(tree, "csrc/pyapi/c.h", "#if KINTSUGI_TORCH_HAS_NODES\n#endif\n")
    assert check_layers.check_tree(tree) == []
    write(tree, "csrc/pyapi/c.h", "#if KINTSUGI_TORCH_HAS_NOTES  // KINTSUGI_TORCH_HAS_NODES\n#endif\n")
    assert check_layers.check_tree(tree) == [
        "csrc/pyapi/c.h: KINTSUGI_TORCH_HAS_NOTES is not looked for in cmake/TorchFeatures.cmake",
        "cmake/TorchFeatures.cmake: nobody asks for KINTSUGI_TORCH_HAS_NODES",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "#if KINTSUGI_TORCH_HAS_INTRUSIVE_NODES\n#endif\n",
        "#if TORCH_VERSION_MINOR >= 14\n#endif\n",
        "#include <torch/headeronly/version.h>\n",
    ],
)
def test_other_layers_know_no_release_of_torch(tmp_path: Path, text: str) -> None:
    rules = (ROOT / "csrc" / "layers.toml").read_text()
    write(tmp_path, "csrc/layers.toml", rules)
    write(tmp_path, "csrc/capture/x.cc", text)
    problems = check_layers.check_tree(tmp_path)
    assert problems and "release of torch" in problems[0]
    path = write(tmp_path, "csrc/torchapi/x.cc", text)
    in_torchapi = list(check_layers.check_file(path, tmp_path / "csrc", tomllib.loads(rules)))
    assert bool(in_torchapi) == ("HAS" not in text)


def test_layers_accept_what_the_file_allows(tree: Path) -> None:
    write(
        tree, "csrc/pyapi/c.cc", '#include <torch/torch.h>\n#include "support/a.h"\nint v = PY_VERSION_HEX;\n'
    )
    assert check_layers.check_tree(tree) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("csrc/support/x.cc", '#include "ir/b.h"\n', "support may not include ir/b.h"),
        ("csrc/ir/x.cc", "#  include <torch/torch.h>\n", "ir may not include torch/torch.h"),
        ("csrc/ir/x.cc", '\n#include "support/none.h"\n', "csrc/ir/x.cc:2: support/none.h does not exist"),
        ("csrc/ir/x.cc", "#if PY_VERSION_HEX\n", "PY_VERSION_HEX may only be used in pyapi"),
        ("csrc/odd/x.cc", "\n", "odd is not a layer"),
    ],
)
def test_layers_find(tree: Path, name: str, text: str, expected: str) -> None:
    write(tree, name, text)
    problems = check_layers.check_tree(tree)
    assert len(problems) == 1 and expected in problems[0]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("PyObject* d = _PyType_Lookup(type, name);", "_PyType_Lookup"),
        ("auto* name = &_Py_ID(__name__);", "_Py_ID"),
        ("void run(_PyInterpreterFrame* frame);", "_PyInterpreterFrame"),
        ("f(Py_TYPE(object)->tp_name);", "->tp_name"),
        ("bool own = PyType_Type.tp_new == make;", ".tp_new"),
        ("PyObject** items = tuple->ob_item;", "->ob_item"),
        ("if (methods->nb_bool != nullptr) f();", "->nb_bool"),
        ("if (methods->sq_length != nullptr) f();", "->sq_length"),
        ("if (methods->mp_length != nullptr) f();", "->mp_length"),
        ("if (methods->am_await != nullptr) f();", "->am_await"),
        ("int count = code->co_argcount;", "->co_argcount"),
        ("PyObject* globals = act.frame->f_globals;", "->f_globals"),
        ("PyObject* cells = function->func_closure;", "->func_closure"),
        ("auto* code = generator->gi_code;", "->gi_code"),
        ("auto* self = method->im_self;", "->im_self"),
        ("auto version = dict->ma_version_tag;", "->ma_version_tag"),
        ("auto* definition = builtin->m_ml;", "->m_ml"),
        ("auto* definition = descriptor->d_method;", "->d_method"),
        ("const char* name = definition->ml_name;", "->ml_name"),
        ("frame->prev_instr = units;", "->prev_instr"),
        ("tstate->recursion_remaining--;", "->recursion_remaining"),
        ("if (state == FRAME_SUSPENDED) f();", "FRAME_SUSPENDED"),
        ("auto* slice = reinterpret_cast<PySliceObject*>(object);", "PySliceObject"),
    ],
)
def test_layers_keep_cpython_in_one_layer(tree: Path, line: str, found: str) -> None:
    real = tomllib.loads((ROOT / "csrc/layers.toml").read_text())
    rows = "".join(
        f"[[patterns]]\nwhat = {json.dumps(row['what'])}\npattern = '{row['pattern']}'\nlayers = {row['layers']}\n"
        for row in real["patterns"]
    )
    write(tree, "csrc/layers.toml", LAYERS + rows)
    write(tree, "csrc/pyapi/x.cc", line + "\n")
    # Initializers of our own types and methods are no uses of CPython's.
    write(
        tree,
        "csrc/ir/y.cc",
        "PyTypeObject type = {\n    .tp_name = kName,\n};\nname_.f();\nentry->d_name[0];\n",
    )
    assert check_layers.check_tree(tree) == []
    write(tree, "csrc/ir/x.cc", line + "\n")
    problems = check_layers.check_tree(tree)
    assert len(problems) == 1 and problems[0].startswith(f"csrc/ir/x.cc:1: {found} (")


def test_layers_ignore_comments(tree: Path) -> None:
    write(tree, "csrc/ir/x.cc", '// #include "pyapi/c.h", PY_VERSION_HEX\n/* #include "pyapi/c.h"\n*/\n')
    assert check_layers.check_tree(tree) == []


def test_layers_must_be_ordered(tree: Path) -> None:
    write(tree, "csrc/layers.toml", '[layers]\nsupport = ["ir"]\nir = []\n[external]\n')
    assert any("support lists ir" in problem for problem in check_layers.check_tree(tree))


FUNCTIONS = """
namespace a {
struct S {
  int inClass(int x) const {
    if (x) { return 1; }
    return R"(a { brace)"[0];
  }
};
const int table[] = {1, 2};
template <typename T, class U>
static auto
longHead(T t) -> U {
  auto lambda = [&](int y) { return "{" + y; };
  return lambda(t);
}
S::S(int v) : v_(v), w_{v} {
  // } in a comment
}
}  // namespace a
HANDLER(LOAD_FAST) {
  int x = '{';
}
"""


def test_sizes_find_functions() -> None:
    found = {f.name: (f.line, f.lines) for f in check_sizes.cpp_functions(FUNCTIONS)}
    assert found["inClass"] == (4, 4)
    assert found["longHead"] == (10, 6)
    assert found["HANDLER"] == (20, 3)
    assert "lambda" not in found and "if" not in found


def test_sizes_limits_and_exceptions(tmp_path: Path) -> None:
    body = "  f();\n" * 70
    write(tmp_path, "csrc/capture/handlers/x.cc", f"void a() {{\n{body}}}\n")
    write(tmp_path, "csrc/ir/x.cc", f"void b() {{\n{body}}}\nvoid c() {{\n{body * 2}}}\n")
    write(tmp_path, "csrc/ir/x.h", "//\n" * 251)
    problems = check_sizes.check_tree(tmp_path)
    assert [problem.split(": ")[1] for problem in problems] == [
        "a has 72 lines, the limit is 60",
        "c has 142 lines, the limit is 80",
        "251 lines, the limit is 250",
    ]
    write(
        tmp_path,
        "scripts/size_exceptions.toml",
        '[exceptions]\n"csrc/ir/x.h" = "a list"\n"csrc/ir/x.cc:c" = ""\n',
    )
    problems = check_sizes.check_tree(tmp_path)
    assert len(problems) == 2 and "has no reason" in problems[0]


def test_docs_find_what_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, "Makefile", "build: x\n")
    write(tmp_path, "csrc/diag/codes.def", 'KTG_CODE(KTG0101, "a", kBreak, "", "")\n')
    write(
        tmp_path,
        "docs/a.md",
        "`csrc/diag/codes.def` `diag/codes.def` `diag/codes.def:1` `make build` KTG0101 `x/y` `a.b` [x](a.md#top)\n"
        "`csrc/none.cc` `docs/none.md`\n"
        "`make nothing` KTG0999 [y](b.md)\n"
        "```\n`csrc/in/a/fence.cc`\n```\n",
    )
    assert [problem.split(": ", 1)[1] for problem in check_docs.check_tree(tmp_path)] == [
        "csrc/none.cc does not exist",
        "docs/none.md does not exist",
        "the Makefile has no target nothing",
        "the link to b.md leads nowhere",
        "KTG0999 is not in csrc/diag/codes.def",
    ]


@pytest.mark.parametrize("module", [check_layers, check_references, check_comments, check_sizes, check_docs])
def test_the_project_passes(module: ModuleType) -> None:
    assert module.check_tree(ROOT) == []


def test_missing_docstrings_are_found() -> None:
    class Base:
        """Documented."""

        def inherited(self) -> None: ...

    class Public(Base):
        __slots__ = ("field",)

        def method(self) -> None: ...

        @property
        def number(self) -> int: ...

        @classmethod
        def made(cls) -> None:
            """Documented."""

        def _private(self) -> None: ...

    package = ModuleType("package")
    package.Public, package.value = Public, 1
    package.__all__ = ["Public", "value"]
    assert api_reference.undocumented(package) == ["Public", "Public.method", "Public.number"]


def test_public_names_have_docstrings() -> None:
    assert api_reference.undocumented(kintsugi) == []


def test_the_house_is_counted(tmp_path: Path) -> None:
    house = load("house")
    for name, text in {
        "csrc/passes/a.cc": 'f("aten.add");  // "aten.mul"\nKINTSUGI_CHECK(x, "");\n'
        + "int a;\nint b;\n" * 300,
        "csrc/ops/b.cc": 'f("aten.add");\n',
        "csrc/pyapi/c.cc": "_PyFrame_Clear();\n",
        "csrc/driver/d.h": "_PyFrame_Clear();\n" + "".join(f"g({k});\n" for k in range(house.SAME_LINES)),
        "csrc/driver/e.h": "h();\n" + "".join(f"g({k});\n" for k in range(house.SAME_LINES)),
        "python/kintsugi/f.py": "pass\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    counted = dict(house.counts(tmp_path))
    assert counted["files over 500 lines"] == "1" and counted["the longest file"] == "602 lines"
    assert counted["lines of Python in `python/`"] == "1"
    assert counted["checks, for 1,000 lines"].startswith("1 (")
    assert counted["lines with names of operators as text, outside `csrc/ops/`"] == "1"
    assert counted["lines with private names of CPython, outside `csrc/pyapi/`"] == "1"
    assert house.duplicates([tmp_path / "csrc/driver/d.h", tmp_path / "csrc/driver/e.h"]) == 1
    page = house.BEGIN + house.table([("lines", "1", "2")], ("a, b", "c, d")) + house.END
    assert house.known(page) == ({"lines": "1"}, ("a, b", "c, d"))


def test_the_page_of_the_house_has_each_count() -> None:
    house = load("house")
    before, origins = house.known(house.PAGE.read_text())
    assert before.keys() == {name for name, _ in house.counts(house.ROOT)}
    assert "?" not in origins
