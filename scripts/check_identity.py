"""No decision hangs on what something is called: `check_identity.py [root]`.

Names of classes, functions and files may stand in messages. Everywhere else objects are compared by identity
(csrc/pyapi/known_objects.h), so a use of a name field outside a message's arguments is an error, unless the file has a
row in ALLOWED that says what it is for. Paths of libraries ("/torch/") may not stand in code at all.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from checked_tree import run_check

SOURCES = {".cc", ".h", ".def", ".inc"}
FIELDS = re.compile(
    r"\b(tp_name|ht_name|ht_qualname|co_name|co_qualname|co_filename|func_name|func_qualname|func_module|ml_name)\b"
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
    "capture/record/calls.cc": (1, "where a bound method's descriptor is looked for"),
    "capture/record/comptime.cc": (2, "places that the program is shown"),
    "capture/record/overloads.cc": (4, "the text of exceptions"),
    "capture/recorder.cc": (2, "the trace's title"),
    "capture/shown.cc": (4, "the attributes that are guarded"),
    "capture/sizes.cc": (1, "the name of a C function that is known to be torch's"),
    "capture/recipes.cc": (5, "names that an object is made again with"),
    "driver/compiled_function.cc": (1, "a name in a message"),
    "driver/const_texts.cc": (4, "the text of a trace"),
    "driver/observed_call.cc": (2, "places in messages"),
    "pyapi/callable_name.cc": (2, "the function that others ask for a name"),
    "pyapi/code.h": (3, "the functions that others ask for a name"),
    "pyapi/functions.h": (4, "the functions that others ask for a name"),
    "pyapi/known_objects.cc": (1, "the look-up by path"),
    "pyapi/module_code.cc": (2, "where sys.modules has the module of some globals"),
    "pyapi/name_fields.cc": (10, "the fields that such attributes are"),
    "pyapi/types.h": (3, "the functions that others ask for a name"),
    "runtime/exit_report.cc": (2, "places in messages"),
    "runtime/guard_explain.cc": (1, "names in messages"),
    "runtime/materialize.cc": (2, "names that an object is made again with"),
    "runtime/run_events.cc": (2, "names in messages"),
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


def check_tree(root: Path) -> list[str]:
    csrc = root / "csrc"
    problems = []
    for path in sorted(csrc.rglob("*")):
        if path.suffix not in SOURCES:
            continue
        name = str(path.relative_to(csrc))
        found = list(uses_of(path.read_text()))
        allowed = ALLOWED.get(name, (0, ""))[0]
        if len(found) > allowed:
            problems += [f"csrc/{name}:{number}: {what} outside a message" for number, what in found]
        elif len(found) < allowed:
            problems.append(f"csrc/{name}: ALLOWED says {allowed} uses of names, and there are {len(found)}")
    return problems + [f"csrc/{name} does not exist" for name in ALLOWED if not (csrc / name).exists()]


if __name__ == "__main__":
    sys.exit(run_check("check_identity", check_tree))
