"""kintsugi.config: process-wide settings with types, defaults, checks, and `patch()`.

A setting is one `Option` of the class `Config`. Reading is an attribute read; writing checks the value and hands it to
the C++ core when the core needs it. `KINTSUGI_<NAME>` in the environment gives a setting another value from the start.
Threads: settings are process-wide; `patch()` in one thread is seen by all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from . import _C, _logs

T = TypeVar("T")


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise TypeError("expected True or False")


MOST = 2**63 - 1
"""The largest number that a setting may have: the core keeps them in 64 bits."""


class _TooLarge(ValueError):
    """A number beyond MOST."""


def _at_least(least: int, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("expected an int")
    if value < least:
        raise ValueError(f"expected a number of at least {least}")
    if value > MOST:
        raise _TooLarge(f"expected a number of at most {MOST}")
    return value


def _positive(value: object) -> int:
    return _at_least(1, value)


def _natural(value: object) -> int:
    return _at_least(0, value)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # Python's own sentence speaks of bases and digits
        if text.strip().isdecimal():  # too many of them for Python
            raise _TooLarge(f"expected a number of at most {MOST}") from None
        raise ValueError("expected a number") from None


def shown(value: object) -> str:
    """For a message: a value of any size in a line."""
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= 80 else text[:60] + "..."


def _backend(value: object) -> Any:
    """A name, or a callable(gm, example_inputs). Whether there is such a name is asked when something is compiled."""
    if (isinstance(value, str) and value) or (callable(value) and not isinstance(value, type)):
        return value
    raise TypeError("expected the name of a backend or a callable(gm, example_inputs)")


def _target(value: object) -> str:
    names = ["native", *_C.target_levels()]
    if value in names:
        return str(value)
    raise ValueError(f"expected {', '.join(map(repr, names[:-1]))} or {names[-1]!r}")


def _path(value: object) -> Path:
    if not isinstance(value, (str, Path)):
        raise TypeError("expected a path")
    if "\0" in str(value):
        raise ValueError("expected a path, which has no null characters")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError("there is no home directory that ~ could stand for") from None


def _default_cache_dir() -> Path:
    """In the user's home; without one (containers run under any number) in the folder for temporary files.

    The cache itself looks whether the folder is the user's alone.
    """
    try:
        return Path("~/.cache/kintsugi").expanduser()
    except RuntimeError:
        return Path(os.environ.get("TMPDIR") or "/tmp") / f"kintsugi-{os.getuid()}"


def _verification(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value in ("off", "on", "abort"):
        return str(value)
    raise ValueError("expected 'off', 'on' or 'abort'")


def _verification_text(text: str) -> str:
    return "abort" if text.lower() == "abort" else _verification(_boolean_text(text))


def _boolean_text(text: str) -> bool:
    value = {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
    if text.lower() not in value:
        raise ValueError("expected 1 or 0")
    return value[text.lower()]


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind(Generic[T]):
    """How values of an option are checked, and how the environment's text becomes one."""

    check: Callable[[object], T]
    parse: Callable[[str], T]


_BOOL = _Kind(_boolean, _boolean_text)
_COUNT = _Kind(_positive, lambda text: _positive(_integer(text)))
_NATURAL = _Kind(_natural, lambda text: _natural(_integer(text)))
_PATH = _Kind(_path, _path)
_VERIFICATION = _Kind(_verification, _verification_text)
_BACKEND = _Kind(_backend, _backend)
_TARGET = _Kind(_target, _target)


class Option(Generic[T]):
    """One setting. `core` says that the C++ core wants to know it, under the option's name."""

    def __init__(
        self, kind: _Kind[T], default: T, doc: str, *, core: bool = False, alias: str | None = None
    ) -> None:
        self.kind = kind
        self.default = default
        self.core = core
        self.alias = alias
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, config: None, owner: type) -> Option[T]: ...
    @overload
    def __get__(self, config: object, owner: type) -> T: ...
    def __get__(self, config: object | None, owner: type) -> Option[T] | T:
        if config is None:
            return self
        value: T = config._values[self.alias or self.name]  # type: ignore[attr-defined]
        return value

    def __set__(self, config: object, value: T) -> None:
        try:
            checked = self.kind.check(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"kintsugi.config.{self.name}: {error}, got {shown(value)}") from None
        config._store(self.alias or self.name, checked)  # type: ignore[attr-defined]


class Config:
    """Process-wide settings. See each attribute's docstring: `help(type(kintsugi.config).recompile_limit)`."""

    recompile_limit = Option(
        _COUNT,
        8,
        "How many traces a compiled callable keeps. Past it, the least recently used one is dropped: new inputs are "
        "recorded all the same, and nothing falls back to eager mode for good.",
        core=True,
    )
    cache_size_limit = Option(
        _COUNT, 8, "Another name of recompile_limit, as in torch.", alias="recompile_limit"
    )
    trace_length_limit = Option(
        _COUNT,
        200_000,
        "A recording that grows past this number of instructions is given up, and the call goes on in eager mode.",
        core=True,
    )
    side_trace_limit = Option(
        _NATURAL,
        64,
        "How many side traces (other paths through the same call) a compiled callable keeps; the least recently used "
        "one is dropped. With 0, calls that leave a trace run on in CPython and are not recorded.",
        core=True,
    )
    eager_when_faster = Option(
        _BOOL,
        True,
        "Callables whose traces have steps that are not looked into, or are left again and again, are compared with "
        "eager mode, on the program's own calls; where eager mode is faster, calls run there, with KTG0114 in the log "
        "`perf`, and the traces are tried again ever more rarely. Not where breaks are errors (fullgraph=True), and "
        "not with backends that get graphs.",
        core=True,
    )
    audit = Option(
        _NATURAL,
        0,
        "With N > 0, one call in N of each compiled callable runs in eager mode too, on a copy of the process, and all "
        "that can be observed is compared; a trace that differs is taken out of use. With 1, every call is recorded or "
        "replayed, and compared. KINTSUGI_AUDIT sets it.",
        core=True,
    )
    verify = Option(
        _VERIFICATION,
        "off",
        "Whether the core verifies what its parts hand to each other: traces, segments, tensor graphs and plans after "
        "each pass, and what the recorder believes about every slot before each instruction. 'on': what fails is "
        "KTG0000, and the call runs in eager mode; 'abort': the process ends with the IR, as debug builds do, which "
        "always verify. KINTSUGI_VERIFY sets it: 1, 0 or abort.",
        core=True,
    )
    report_compiling = Option(
        _BOOL,
        False,
        "What torch.compiler.is_compiling() answers to the program while a call is recorded. With False, libraries "
        "take the branch that they take in eager mode. Where a backend of somebody else's gets the graphs, and in "
        "kintsugi.is_compiling(), the answer is always True.",
        core=True,
    )
    suppress_errors = Option(
        _BOOL,
        True,
        "An error of a custom backend is logged and the graph runs uncompiled; with False it is raised.",
        core=True,
    )
    verbose = Option(
        _BOOL,
        False,
        "Log lines of graph breaks and recompilations carry the whole stack of the program.",
        core=True,
    )
    assume_static_by_default = Option(
        _BOOL,
        True,
        "Sizes are taken for constants the first time they are seen. With False, they are dynamic from the start.",
        core=True,
    )
    error_on_graph_break = Option(
        _BOOL, False, "The first graph break is an error. fullgraph=True wins over it.", core=True
    )
    cache_dir = Option(
        _PATH,
        _default_cache_dir(),
        "Where compiled code is kept between processes. Nothing is written there until a backend has code to keep.",
        core=True,
    )
    disk_cache_limit = Option(
        _NATURAL,
        256 * 1024 * 1024,
        "How many bytes of compiled code cache_dir may hold; the least recently used goes. With 0, none is kept.",
        core=True,
    )
    memory_pool_limit = Option(
        _NATURAL,
        512 * 1024 * 1024,
        "How many bytes of memory that tensors of compiled calls have had may stay with the process for the next ones, "
        "so that no page is touched for the first time in steady state; never more than an eighth of the memory that "
        "there is. With 0, none.",
        core=True,
    )
    target = Option(
        _TARGET,
        "native",
        "The vector instructions that machine code may use: 'sse4', 'avx2' or 'avx512' on x86-64, 'neon' on AArch64, "
        "and never more than the machine has; 'native' is all of them. It counts for what is compiled from then on. "
        "KINTSUGI_TARGET sets it.",
        core=True,
    )
    default_backend = Option(
        _BACKEND,
        "native",
        "The backend of compile() where none is named: 'native' compiles to machine code, 'eager' replays, bitwise as "
        "eager mode; or the name of another, or a callable(gm, example_inputs), as set_default_backend() takes it.",
    )

    def __init__(self) -> None:
        values = {name: option.default for name, option in self._options().items() if option.alias is None}
        object.__setattr__(self, "_values", values)

    @classmethod
    def _options(cls) -> dict[str, Option[Any]]:
        return {name: value for name, value in vars(cls).items() if isinstance(value, Option)}

    def _store(self, name: str, value: object) -> None:
        if self._options()[name].core and self is current():
            _C.set_config(name, value)
        self._values[name] = value

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._options():
            raise AttributeError(self._unknown(name))
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        # Only reached for what is not an option.
        raise AttributeError(self._unknown(name))

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"kintsugi.config.{name} can't be deleted; to get the default back, use reset()")

    def __dir__(self) -> list[str]:
        return [*self._options(), "patch", "reset", "to_dict"]

    def __repr__(self) -> str:
        return "kintsugi.config(" + ", ".join(f"{k}={v!r}" for k, v in self.to_dict().items()) + ")"

    def _unknown(self, name: str) -> str:
        names = list(self._options())
        close = difflib.get_close_matches(name, names, 1)
        hint = f" Did you mean {close[0]}?" if close else f" Known: {', '.join(names)}."
        return f"kintsugi.config has no setting {name!r}.{hint}"

    def to_dict(self) -> dict[str, Any]:
        """All settings with their present values."""
        return {name: getattr(self, name) for name in self._options()}

    def reset(self) -> None:
        """Sets everything back to its default."""
        for name, option in self._options().items():
            if option.alias is None:
                setattr(self, name, option.default)

    @contextlib.contextmanager
    def patch(self, changes: Mapping[str, Any] | None = None, /, **more: Any) -> Iterator[Config]:
        """Other settings for a block or a function; what was there before comes back, also after an exception.

        For example:

            with kintsugi.config.patch(recompile_limit=1): ...

            @kintsugi.config.patch(verbose=True)
            def test(): ...
        """
        wanted = {**(changes or {}), **more}
        for name in wanted:
            if name not in self._options():
                raise AttributeError(self._unknown(name))
        before = dict(self._values)
        try:
            for name, value in wanted.items():
                setattr(self, name, value)
            yield self
        finally:
            # Only what this block changed: another thread may have written other settings meanwhile.
            for name in wanted:
                stored = self._options()[name].alias or name
                if self._values[stored] != before[stored]:
                    self._store(stored, before[stored])

    def load_environment(self, environment: Mapping[str, str]) -> None:
        """Takes `KINTSUGI_<NAME>` for each setting that is there."""
        for name, option in self._options().items():
            variable = f"KINTSUGI_{name.upper()}"
            text = environment.get(variable)
            if not text:
                continue
            try:
                value = option.kind.parse(text)
            except _TooLarge as error:
                _logs.warn(f"{variable}={text[:60]} in the environment: {error}, which is taken")
                value = MOST
            except (TypeError, ValueError) as error:
                given = text if len(text) <= 80 else text[:60] + "..."
                raise ValueError(f"{variable}={given} in the environment: {error}") from None
            setattr(self, name, value)

    def push_all(self) -> None:
        """Hands every setting that the core needs to the core."""
        for name, option in self._options().items():
            if option.core:
                _C.set_config(name, getattr(self, name))


_current: Config | None = None


def install(config: Config) -> None:
    """Makes `config` the process's settings."""
    global _current
    _current = config


def current() -> Config | None:
    """The process's settings; None while they are being set up."""
    return _current
