"""What comments of csrc/ name is there: `check_comments.py [root]`.

A single name in backticks is a name of the code. In a header it is one of that header, of what it includes, or of the
file that implements it, so that a parameter or a field that is gone is not described any longer. In other files it is
one of any file. Names of Python, environment variables, texts of the IR (string literals), and names that an example in
the same comment brings along are fine as well. A file that a comment names by its path exists. Indented lines (rows of
a table, examples), which clang-format leaves alone, fit into the line.
"""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from checked_tree import run_check

WORD = re.compile(r"[A-Za-z_]\w*")
TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
INCLUDE = re.compile(r'#\s*include "([^"]+)"')
# A literal is tried first: `"//"` is no comment.
LITERAL_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
BLOCK = re.compile(r"//[^\n]*(?:\n[ \t]*//[^\n]*)*")
BACKTICKS = re.compile(r"`([^`]+)`")
# A line of a block that is an example: `//   %1 = add(%0, %0)`.
EXAMPLE = re.compile(r"^[ \t]*// {3,}(.*)$", re.MULTILINE)
# What .clang-format has for CommentPragmas, and its width.
INDENTED = re.compile(r"^[ \t]*// {2,}\S.*$", re.MULTILINE)
COLUMNS = 110
PATH = re.compile(r"(?<![\w./<-])((?:[\w-]+/)+[\w-]+\.(?:h|cc|def|py|md|ktir|toml))\b")
DUNDER = re.compile(r"__\w+__")
PYTHON = {*dir(builtins), *keyword.kwlist, "self"}
# Keywords of C++, and the text of an instruction.
SYNTAX = {"aten", "const", "inline", "static", "template", "this", "void"}
# Where the text forms of the IR, of guards and of tensor graphs are printed, and tables.
TEXTS = re.compile(r"csrc/(?:ir|guard|passes)/|.*\.(?:h|def)$")
# Where other projects' files are: torch's and CPython's sources.
FOREIGN = re.compile(r"(?:torch|aten|c10|Include|Objects|Python|Modules|Lib)/")


def code_of(text: str) -> str:
    return LITERAL_OR_COMMENT.sub(lambda found: found.group() if found.group()[0] == '"' else " ", text)


def words_of(text: str) -> set[str]:
    return set(WORD.findall(text))


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root
        paths = sorted(path for path in (root / "csrc").rglob("*") if path.suffix in {".h", ".cc", ".def"})
        self.texts = {str(path.relative_to(root)): path.read_text() for path in paths}
        codes = {name: code_of(text) for name, text in self.texts.items()}
        self.words = {name: words_of(code) for name, code in codes.items()}
        self.everywhere = set().union(*self.words.values())
        python = (path.read_text() for path in sorted((root / "python").rglob("*.py")))
        self.settings = self.everywhere.union(*(words_of(text) for text in python))
        literals = (TEXT.findall(code) for name, code in codes.items() if TEXTS.match(name))
        self.literals = words_of(" ".join(text for found in literals for text in found))

    def known_in(self, name: str) -> set[str]:
        if not name.endswith(".h"):
            return self.everywhere
        near = [name, name.removesuffix(".h") + ".cc"]
        near += ["csrc/" + included for included in INCLUDE.findall(self.texts[name])]
        return self.literals.union(*(self.words.get(each, set()) for each in near))

    def has_file(self, path: str, beside: str) -> bool:
        """From the root, csrc/, the package, the layer or the folder of the file `beside`."""
        bases = ("", "csrc", "python/kintsugi", "/".join(beside.split("/")[:2]), str(Path(beside).parent))
        return any((self.root / base / path).exists() for base in bases)


def names_of(block: str) -> Iterator[str]:
    """The single names in backticks that no example of the comment brings along."""
    examples = words_of(" ".join(EXAMPLE.findall(block)))
    quoted = BACKTICKS.findall(re.sub(r"\n[ \t]*//", " ", block))
    examples |= words_of(" ".join(text for text in quoted if not WORD.fullmatch(text)))
    for text in quoted:
        if WORD.fullmatch(text) and text not in examples:
            yield text


def is_language(name: str) -> bool:
    return name in PYTHON or name in SYNTAX or DUNDER.fullmatch(name) is not None


def check_file(tree: Tree, name: str) -> Iterator[str]:
    text = tree.texts[name]
    known = tree.known_in(name)
    for block in BLOCK.finditer(text):
        number = text.count("\n", 0, block.start()) + 1
        for word in names_of(block.group()):
            if not is_language(word) and word not in (tree.settings if word.isupper() else known):
                yield f"{name}:{number}: the comment names `{word}`, which is not there"
        for line in INDENTED.finditer(block.group()) if not name.endswith(".def") else ():
            if len(line.group()) > COLUMNS:
                at = number + block.group().count("\n", 0, line.start())
                yield f"{name}:{at}: an indented line of a comment has more than {COLUMNS} columns"
        for path in PATH.findall(block.group()):
            if not FOREIGN.match(path) and not tree.has_file(path, name):
                yield f"{name}:{number}: the comment names {path}, which does not exist"


def check_tree(root: Path) -> list[str]:
    tree = Tree(root)
    return [problem for name in tree.texts for problem in check_file(tree, name)]


if __name__ == "__main__":
    sys.exit(run_check("check_comments", check_tree))
