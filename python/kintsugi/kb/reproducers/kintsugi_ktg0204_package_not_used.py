"""package-not-used: a callable is given a file that is no package; its calls are recorded."""

import pathlib
import tempfile

import torch


def around(run):
    import kintsugi

    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "step.package")
        file.write_bytes(b"no package")
        compiled = kintsugi.load_package(problem, file, backend="eager")
        compiled(torch.ones(3))
    return run()


def problem(x):
    return x * 2 + 1
