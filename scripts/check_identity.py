"""No decision hangs on what something is called: `check_identity.py [root]`.

Names of classes, functions and files may stand in messages. Everywhere else objects are compared by identity
(csrc/pyapi/known_objects.h), so a use of a name field outside a message's arguments is an error, unless the file has a
row in ALLOWED that says what it is for. Paths of libraries ("/torch/") may not stand in code at all.

In python/ the fields are `__name__`, `__qualname__`, `__module__`, `__file__` and those of code objects, as attributes
or as text; what a message or an exception is made of (an f-string, a `raise`) is left out, and so are the folders of
TOOLS, which decide nothing about a program: the command line, reports, the knowledge base.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from checked_tree import run_check

SOURCES = {".cc", ".h", ".def", ".inc"}
FIELDS = re.compile(
    r"\b(tp_name|ht_name|ht_qualname|co_name|co_qualname|co_filename|func_name|func_qualname|func_module|ml_name"
    r"|PyDescr_NAME|PyModule_GetName|PyModule_GetNameObject|PyModule_GetFilenameObject|PyEval_GetFuncName)\b"
    r"|\bpyapi::(typeName|typeNameOf|heapTypeName|fileOf|nameOf|qualifiedNameOf|moduleOf|builtinName)\b"
    r'|"(__name__|__qualname__|__module__)"|"[^"\n]*/(torch|numpy|kintsugi)/[^"\n]*"'
)
MESSAGES = re.compile(
    r"\b(abort|refuse|refuseClass|noteBreak|endFor|endAndRelease|diagnosticAt|Diagnostic|PyErr_Format|pinUnchanged|KINTSUGI_\w+)\s*\("
)
# How many uses a file has, and what for.
ALLOWED = {
    "capture/attributes.cc": (3, "the attribute that the program asks for has that name"),
    "capture/special_methods.cc": (3, "the attribute that the program asks for has that name"),
    "capture/breaks.cc": (4, "places and names in messages"),
    "capture/check_shadows.cc": (1, "a name in a message"),
    "capture/calls/classes.cc": (1, "the attribute that type.__new__ adds"),
    "capture/calls/inner_code.cc": (1, "the look-up by path"),
    "capture/finalizer_tracker.cc": (2, "names in messages"),
    "capture/handlers/generators.cc": (1, "the text of an exception"),
    "capture/handlers/modules.cc": (1, "the text of an exception"),
    "capture/record/calls.cc": (1, "where a bound method's descriptor is looked for"),
    "capture/record/comptime.cc": (2, "places that the program is shown"),
    "capture/record/overloads.cc": (4, "the text of exceptions"),
    "capture/recorder.cc": (2, "the trace's title"),
    "capture/shown.cc": (4, "the attributes that are guarded"),
    "capture/sizes.cc": (2, "the names of C functions and descriptors that are known to be torch's"),
    "capture/recipes.cc": (5, "names that an object is made again with"),
    "driver/compiled_function.cc": (1, "a name in a message"),
    "driver/const_texts.cc": (5, "the text of a trace"),
    "driver/observed_call.cc": (2, "places in messages"),
    "pyapi/callable_name.cc": (2, "the function that others ask for a name"),
    "pyapi/classes.cc": (1, "where a class has the descriptor, which is compared"),
    "pyapi/code.h": (3, "the functions that others ask for a name"),
    "pyapi/functions.h": (4, "the functions that others ask for a name"),
    "pyapi/known_objects.cc": (1, "the look-up by path"),
    "pyapi/module_code.cc": (2, "where sys.modules has the module of some globals"),
    "pyapi/name_fields.cc": (14, "the fields that such attributes are"),
    "pyapi/types.h": (3, "the functions that others ask for a name"),
    "runtime/exit_report.cc": (2, "places in messages"),
    "runtime/guard_explain.cc": (1, "names in messages"),
    "runtime/materialize.cc": (2, "names that an object is made again with"),
    "runtime/run_events.cc": (2, "names in messages"),
}

PYTHON_FIELDS = {
    "__name__",
    "__qualname__",
    "__module__",
    "__file__",
    "co_name",
    "co_qualname",
    "co_filename",
}
TOOLS = ("kintsugi/cli/", "kintsugi/report/", "kintsugi/kb/", "kintsugi_command/")
# The same for python/.
ALLOWED_PYTHON = {
    "kintsugi/_audit.py": (7, "titles, and where a class is looked for that a repeated call makes"),
    "kintsugi/_bundle.py": (5, "the source of a program, and the name that it defines"),
    "kintsugi/_callable.py": (2, "where pickle looks for the object, which is compared"),
    "kintsugi/_diagnostics.py": (3, "places in messages"),
    "kintsugi/_export.py": (7, "names that a module is made with, and places"),
    "kintsugi/_export_callees.py": (4, "the function that others ask for a name"),
    "kintsugi/_export_report.py": (1, "a name in a message"),
    "kintsugi/_guard_filter.py": (
        4,
        "names that filters are shown; where a class is looked for, which is compared",
    ),
    "kintsugi/_module.py": (1, "the module that a class is made with"),
    "kintsugi/_package.py": (4, "the title of a package"),
    "kintsugi/_package_describe.py": (16, "what an object of another process is compared with, all of it"),
    "kintsugi/_package_file.py": (1, "the files whose content is compared"),
    "kintsugi/_package_traces.py": (5, "the modules that a trace needs, and titles"),
    "kintsugi/_package_ways.py": (10, "where an object is looked for in another process, which is compared"),
    "kintsugi/_place.py": (1, "a place in messages"),
    "kintsugi/_polyfill_autograd.py": (3, "names that a class is made with"),
    "kintsugi/_polyfill_higher_order.py": (3, "names that a function is made with"),
    "kintsugi/_polyfill_modes.py": (2, "the attribute that a descriptor is of, and a title"),
    "kintsugi/_requirements.py": (1, "where the headers of torch's release are"),
    "kintsugi/_rewrite.py": (1, "the name that a source defines"),
    "kintsugi/_trial.py": (1, "a name in a message"),
    "kintsugi/backends/registry.py": (2, "the name that a backend is registered under"),
}


def strip_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def without_messages(text: str) -> str:
    """Blanks the arguments of calls that report something."""
    out = list(text)
    for match in MESSAGES.finditer(text):
        depth, at = 0, match.end() - 1
        while at < len(text):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            if depth == 0:
                break
            at += 1
        for i in range(match.end(), at):
            if out[i] != "\n":
                out[i] = " "
    return "".join(out)


def uses_of(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(without_messages(strip_comments(text)).splitlines(), 1):
        for match in FIELDS.finditer(line):
            yield number, match.group().strip('"')


def python_uses_of(text: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(text)
    told = {
        id(node)
        for message in ast.walk(tree)
        if isinstance(message, ast.JoinedStr | ast.Raise)
        for node in ast.walk(message)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in told:
            continue
        read = (
            isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in PYTHON_FIELDS
        )
        if read or (isinstance(node, ast.Constant) and node.value in PYTHON_FIELDS):
            found.append((node.lineno, node.attr if read else node.value))
    yield from sorted(found)


def check_folder(
    folder: Path,
    suffixes: set[str],
    uses: Callable[[str], Iterator[tuple[int, str]]],
    allowed_uses: Mapping[str, tuple[int, str]],
    left_out: tuple[str, ...] = (),
) -> list[str]:
    problems = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix not in suffixes or name.startswith(left_out):
            continue
        found = list(uses(path.read_text()))
        allowed = allowed_uses.get(name, (0, ""))[0]
        if len(found) > allowed:
            problems += [f"{folder.name}/{name}:{number}: {what} outside a message" for number, what in found]
        elif len(found) < allowed:
            problems.append(
                f"{folder.name}/{name}: ALLOWED says {allowed} uses of names, and there are {len(found)}"
            )
    missing = [name for name in allowed_uses if not (folder / name).exists()]
    return problems + [f"{folder.name}/{name} does not exist" for name in missing]


def check_tree(root: Path) -> list[str]:
    return check_folder(root / "csrc", SOURCES, uses_of, ALLOWED) + check_folder(
        root / "python", {".py"}, python_uses_of, ALLOWED_PYTHON, TOOLS
    )


if __name__ == "__main__":
    sys.exit(run_check("check_identity", check_tree))
