"""Runs one CPython test module and prints the outcome of each test case as JSON.

Started by run.py in a process of its own: `worker.py MODULE MODE EXTENSION`, with MODE `plain` or `interpreted`.
The extension is loaded in both modes, so that the only difference is who evaluates the frames.
"""

import importlib.machinery
import importlib.util
import json
import os
import sys
import time
import unittest

MARKER = "@@outcomes@@"


def load_extension(path):
    """The extension module with the interpreter's switch: a file, or `kintsugi._C`."""
    if path == "kintsugi._C":
        import kintsugi._C

        return kintsugi._C
    name = os.path.basename(path).split(".")[0]
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class OutcomeRecorder(unittest.TestResult):
    """Keeps the worst outcome of each test case; sub-tests count into their test."""

    RANK = {"ok": 0, "skipped": 1, "expected failure": 1, "unexpected success": 2, "failed": 3, "error": 4}

    def __init__(self):
        super().__init__()
        self.outcomes = {}
        self.details = {}
        self._counts = {}
        self._current = None

    def startTest(self, test):
        super().startTest(test)
        name = test.id()
        self._counts[name] = self._counts.get(name, 0) + 1
        self._current = name if self._counts[name] == 1 else f"{name}#{self._counts[name]}"
        self._note("ok", None)

    def _note(self, outcome, detail):
        name = self._current
        if self.RANK[outcome] >= self.RANK[self.outcomes.get(name, "ok")]:
            self.outcomes[name] = outcome
            if detail is not None:
                self.details[name] = str(detail)[-3000:]

    def _note_outside(self, test, outcome, detail):
        """A failure in a class or module fixture belongs to no test case."""
        if not isinstance(test, unittest.TestCase):
            self._current = test.id()
        self._note(outcome, detail)

    def addSuccess(self, test):
        pass

    def addError(self, test, err):
        self._note_outside(test, "error", self._exc_info_to_string(err, test))

    def addFailure(self, test, err):
        self._note_outside(test, "failed", self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        self._note_outside(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self._note("expected failure", None)

    def addUnexpectedSuccess(self, test):
        self._note("unexpected success", None)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            failed = issubclass(err[0], test.failureException)
            self._note("failed" if failed else "error", self._exc_info_to_string(err, test))


def run_module(name, extension, interpreted):
    from test.support import os_helper

    recorder = OutcomeRecorder()
    with os_helper.temp_cwd(name=f"kintsugi_conformance_{os.getpid()}", quiet=True):
        sys.path.insert(0, os.getcwd())
        if interpreted:
            extension._set_interpret_all(True)
        started = time.perf_counter()
        suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{name}")
        suite.run(recorder)
        seconds = time.perf_counter() - started
        if interpreted:
            extension._set_interpret_all(False)
    frames = extension._interpreted_frames()
    return {"outcomes": recorder.outcomes, "details": recorder.details, "seconds": seconds, "frames": frames}


def main():
    name, mode, extension_path = sys.argv[1:4]
    sys.argv = [name]
    report = run_module(name, load_extension(extension_path), mode == "interpreted")
    # Tests print, and some replace sys.stdout: the report goes to the real one, on a line of its own.
    os.write(1, f"\n{MARKER}{json.dumps(report)}\n".encode())


if __name__ == "__main__":
    main()
