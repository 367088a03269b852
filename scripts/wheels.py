"""Builds the source distribution and the wheels: `make wheels`.

    wheels.py [--python 3.11 ...] [--pairs 3.11-2.14 ...] [--out FOLDER] [--work FOLDER]

One wheel for each Python of requirements/pairs.txt. It has a module for each torch of that Python, in a folder of its
own, and once what knows neither: libkintsugi_core.so, and the module of the knowledge base's matcher. Every pair is
built by itself, in the environment of the pair; what is in the wheel once has to come out of all of them the same, byte
by byte.

The same sources give the same files: times are those of the last commit, paths of this machine are not compiled in, and
the packages that build are pinned.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POLICY = "manylinux_2_28"
# Loaded by torch before us.
OF_TORCH = ("libtorch_python.so", "libtorch_cpu.so", "libc10.so")
TARGETS = ("kintsugi_core", "_C", "_kb")
LIMIT = 40 * 10**6  # bytes of a wheel


def run(*command: str | Path, cwd: Path = ROOT, quiet: bool = False, **environment: str) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "TZ": "UTC", **environment},
        capture_output=quiet,
        text=True,
    )
    if done.returncode:
        print(done.stdout or "", done.stderr or "", sep="")
        sys.exit(f"wheels: {' '.join(map(str, command))} failed")


def output(*command: str | Path) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def pairs() -> list[str]:
    return output(ROOT / "scripts" / "pair.sh", "list").splitlines()


def tool(name: str) -> Path:
    """A program of the environment that this script runs in."""
    return Path(sys.executable).parent / name


def environment_of(pair: str) -> Path:
    """The interpreter that a pair is built with; the Makefile knows where it is, and makes it."""
    run("make", "-s", "environment", f"PAIR={pair}")
    return ROOT / output("make", "-s", "--no-print-directory", "interpreter", f"PAIR={pair}")


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def re2_source(work: Path) -> Path:
    """RE2, out of the package that has it inside."""
    source = work / "re2"
    if not (source / "re2" / "re2.h").exists():
        download = fresh(work / "download")
        run(
            tool("python"), "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps",
            "--no-binary", "grpcio", "--require-hashes", "-d", download, "-r", "requirements/wheel_sources.txt",
        )  # fmt: skip
        (archive,) = download.glob("*.tar.gz")
        fresh(source)
        inside = f"{archive.name.removesuffix('.tar.gz')}/third_party/re2/"
        with tarfile.open(archive) as file:
            for member in file.getmembers():
                if member.isfile() and member.name.startswith(inside):
                    member.name = member.name.removeprefix(inside)
                    file.extract(member, source, filter="data")
    return source


def build_pair(pair: str, work: Path, jobs: int) -> Path:
    """The folder that `pair` is installed to, as a wheel of it alone would have it."""
    python = environment_of(pair)
    build, stage = work / pair, fresh(work / f"{pair}-installed")
    run(
        tool("cmake"), "-S", ROOT, "-B", build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
        f"-DPython_EXECUTABLE={python}", "-DKINTSUGI_TESTS=OFF",
        "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", f"-DKINTSUGI_LINK_STUBS={work / 'stubs'}",
        f"-DKINTSUGI_RE2_SOURCE={re2_source(work)}", quiet=True,
    )  # fmt: skip
    run(tool("ninja"), "-C", build, "-j", str(jobs), "--quiet", *TARGETS)
    run(
        tool("cmake"), "--install", build, "--component", "extension", "--prefix", stage, "--strip",
        quiet=True,
    )  # fmt: skip
    return stage


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def merge(stages: list[Path], into: Path) -> None:
    """The files of several pairs. A file that two of them have has to be the same one."""
    for stage in stages:
        for path in sorted(path for path in stage.rglob("*") if path.is_file()):
            target = into / path.relative_to(stage)
            if target.exists():
                if digest(target) != digest(path):
                    sys.exit(f"wheels: {path} and {target} should be the same, and differ")
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


def source_distribution(out: Path, time: str) -> Path:
    run(
        tool("python"), "-m", "build", "--sdist", "--no-isolation", "--skip-dependency-check", "-o", out, ROOT,
        quiet=True, SOURCE_DATE_EPOCH=time,
    )  # fmt: skip
    (archive,) = out.glob("*.tar.gz")
    return archive


def pack(python: Path, built: Path, source: Path, work: Path, out: Path, time: str) -> Path:
    """One wheel, of files that are built already."""
    raw = fresh(work / f"{built.name}-raw")
    run(
        python, "-m", "pip", "wheel", "-qq", "--disable-pip-version-check", "--no-deps", "--no-index",
        "--no-build-isolation", "-w", raw, "-C", f"cmake.define.KINTSUGI_BUILT={built}",
        "-C", f"build-dir={fresh(work / f'{built.name}-build')}", source,
        SOURCE_DATE_EPOCH=time,
        PATH=f"{tool('cmake').parent}{os.pathsep}{os.environ['PATH']}",
    )  # fmt: skip
    (wheel,) = raw.glob("*.whl")
    repaired = fresh(work / f"{built.name}-repaired")
    excluded = [word for name in OF_TORCH for word in ("--exclude", name)]
    run(
        tool("auditwheel"), "repair", "--plat", f"{POLICY}_x86_64", "--only-plat", *excluded,
        "-w", repaired, wheel,
        quiet=True, SOURCE_DATE_EPOCH=time,
        PATH=f"{tool('patchelf').parent}{os.pathsep}{os.environ['PATH']}",
    )  # fmt: skip
    (wheel,) = repaired.glob("*.whl")
    return Path(shutil.copy2(wheel, out / wheel.name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", help="a wheel for this Python (default: for each)")
    parser.add_argument("--pairs", action="append", help="only these pairs (default: all of each Python)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "wheels")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    work, out = options.work.resolve(), fresh(options.out.resolve())
    work.mkdir(parents=True, exist_ok=True)
    time = output("git", "log", "-1", "--format=%ct")
    run(sys.executable, ROOT / "scripts" / "link_stubs.py", POLICY, work / "stubs")
    archive = source_distribution(out, time)
    made = [archive]
    listed = pairs()
    wanted = [pair for pair in listed if not options.pairs or pair in options.pairs]
    for version in dict.fromkeys(pair.split("-")[0] for pair in wanted):
        if options.python and version not in options.python:
            continue
        built = fresh(work / f"cp{version.replace('.', '')}")
        ours = [pair for pair in wanted if pair.split("-")[0] == version]
        merge([build_pair(pair, work, options.jobs) for pair in ours], built)
        pythons = [environment_of(pair) for pair in ours]
        run(sys.executable, ROOT / "scripts" / "sbom.py", built / "sboms" / "kintsugi.cdx.json", *pythons)
        made.append(pack(pythons[0], built, archive, work, out, time))
        left_out = [pair for pair in listed if pair.split("-")[0] == version and pair not in ours]
        if left_out:
            print(f"{made[-1].name} is not for others: its metadata let in torches of {', '.join(left_out)}")
    for path in made:
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, sha256 {digest(path)}")
        if path.stat().st_size > LIMIT:
            sys.exit(f"wheels: {path.name} is larger than {LIMIT / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
