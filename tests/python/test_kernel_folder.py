"""The folder of compiled kernels: whose it must be, what may lie in it, and where it can't be written."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from children import in_fork

import kintsugi

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    kintsugi.clear_cache(disk=False)
    with kintsugi.config.patch(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache" / "kernels"
    kintsugi.clear_cache(disk=False)


def compiles(k: int = 1) -> tuple[int, int, int]:
    """Compiles a program, as a new process would, and checks it; kernels compiled, loaded and rejected."""
    kintsugi.reset()
    kintsugi.clear_cache(disk=False)
    before = kintsugi.cache_info()

    # Another chain of operations for each `k`, and so another kernel.
    def f(x: torch.Tensor) -> torch.Tensor:
        for bit in range(4):
            x = (x.exp() - 0.5 if k >> bit & 1 else x.sigmoid() * 2).tanh()
        return x

    compiled = kintsugi.compile(f, backend="native", options={"sync": True})
    x = torch.linspace(-1, 1, 100)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), f(x))
    assert compiled.stats().native_ready == 1
    after = kintsugi.cache_info()
    return (
        after.compiled - before.compiled,
        after.loaded - before.loaded,
        after.rejected - before.rejected,
    )


def kernels(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.kernel"))


def test_the_folder_is_the_users_alone(folder: Path) -> None:
    old = os.umask(0)
    try:
        assert compiles() == (1, 0, 0)
    finally:
        os.umask(old)
    for path in (folder, folder.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert kernels(folder)
    for file in kernels(folder):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert compiles() == (0, 1, 0)


def other_owner(folder: Path) -> None:
    os.chown(folder, NOBODY, NOBODY)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda folder: folder.chmod(0o777), "others may write it"),
        (lambda folder: folder.chmod(0o770), "others may write it"),
        pytest.param(other_owner, "it belongs to somebody else", marks=as_root),
    ],
)
def test_what_others_own_or_may_write_is_refused(spoil, why: str, folder: Path, tmp_path: Path) -> None:
    assert compiles(2) == (1, 0, 0)
    kept = kernels(folder)
    spoil(folder)
    for _ in range(2):
        assert compiles(2) == (1, 0, 0)  # neither read nor written
    compiles(3)
    assert kernels(folder) == kept
    code = """
import kintsugi, torch, time
for k in range(3):
    compiled = kintsugi.compile(lambda x: x.exp() + k, backend="native", options={"sync": True})
    with torch.no_grad():
        for _ in range(3):
            assert torch.allclose(compiled(torch.ones(3)), torch.ones(3).exp() + k)
    assert compiled.stats().native_ready == 1
"""
    env = os.environ | {"KINTSUGI_CACHE_DIR": str(folder.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"[kintsugi] the cache folder {folder} is not used: {why}")
    assert "kept in memory only" in line and "KINTSUGI_CACHE_DIR" in line


def fifo(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()
    (path / "something").touch()


def link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_bytes(b"x" * 100)
    path.symlink_to(target)


def unreadable(path: Path) -> None:
    path.write_bytes(b"secret")
    path.chmod(0)


def writable_by_all(path: Path) -> None:
    path.write_bytes(b"KTKERN01" + b"\0" * 100)
    path.chmod(0o666)


def enormous(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 36)


@pytest.mark.parametrize("put", [fifo, directory, link, unreadable, writable_by_all, enormous])
def test_entries_that_are_no_files_of_ours_are_skipped(put, folder: Path) -> None:
    assert compiles() == (1, 0, 0)
    names = kernels(folder)
    for name in names:
        name.unlink()
        put(name)
    start = time.monotonic()
    assert compiles() == (1, 0, 1)
    assert time.monotonic() - start < 60
    if put is not directory:  # which stays as it is
        assert compiles() == (0, 1, 0)


@as_root
def test_what_may_not_be_read_is_skipped(folder: Path) -> None:
    """Root reads everything: as somebody else."""

    def work() -> tuple[tuple[int, int, int], ...]:
        os.chmod(folder.parents[1], 0o777)
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        first = compiles()
        for name in kernels(folder):
            name.chmod(0)
        return first, compiles(), compiles()

    for above in folder.parents[2:]:
        if not above.stat().st_mode & stat.S_IXOTH:
            pytest.skip("the folder for temporary files is closed to others")
    assert in_fork(work) == ((1, 0, 0), (1, 0, 1), (0, 1, 0))


def test_drafts_that_were_left_are_cleared(folder: Path) -> None:
    compiles()
    old, new = folder / "a.kernel.7.1.tmp", folder / "b.kernel.7.2.tmp"
    for draft in (old, new):
        draft.write_bytes(b"x" * 1000)
    os.utime(old, (1, 1))
    compiles(2)
    assert not old.exists() and new.exists()
    kintsugi.clear_cache()
    assert list(folder.iterdir()) == []


def test_drafts_count_towards_the_limit(folder: Path) -> None:
    compiles()
    size = kernels(folder)[0].stat().st_size
    with kintsugi.config.patch(disk_cache_limit=size * 20):
        for k in range(2, 5):
            compiles(k)
        kept = len(kernels(folder))
        assert kept >= 4
        (folder / "b.kernel.7.2.tmp").write_bytes(b"x" * size * 18)
        compiles(5)
        total = sum(path.stat().st_size for path in folder.iterdir())
        assert len(kernels(folder)) < kept + 1 and total <= size * 20


def test_other_files_are_left_alone(folder: Path) -> None:
    compiles()
    (folder / "notes.txt").write_text("mine")
    with kintsugi.config.patch(disk_cache_limit=1):
        compiles(2)
    kintsugi.clear_cache()
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_where_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for place in (tmp_path / "file" / "below", Path("/proc/kintsugi"), Path("/dev/null")):
        with kintsugi.config.patch(cache_dir=place):
            assert compiles()[0] == 1


def test_a_full_disk(folder: Path) -> None:
    """No file may grow: writes fail as on a disk without room."""

    def work() -> tuple[tuple[int, int, int], list[str]]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        return compiles(), [path.name for path in folder.iterdir()]

    assert in_fork(work) == ((1, 0, 0), [])
    assert compiles() == (1, 0, 0)


def mounted(where: Path, options: str) -> bool:
    where.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)], capture_output=True)
    return done.returncode == 0


@as_root
@pytest.mark.parametrize("options", ["size=4k,mode=700", "ro,mode=700"])
def test_a_small_and_a_read_only_disk(options: str, tmp_path: Path) -> None:
    where = tmp_path / "disk"
    try:
        if not mounted(where, options):
            pytest.skip("mounting is not permitted here")
    except FileNotFoundError:
        pytest.skip("there is no mount")
    try:
        with kintsugi.config.patch(cache_dir=where):
            for k in range(1, 6):
                assert compiles(k)[0] == 1
            assert not list(where.rglob("*.tmp"))
    finally:
        kintsugi.clear_cache(disk=False)
        subprocess.run(["umount", str(where)], check=True)


def test_two_writers(folder: Path) -> None:
    """Processes that compile the same at once: all is right, nothing is half written, the next one loads it."""
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                torch.set_num_threads(1)
                for k in (1, 2, 3, 4, 5):
                    compiles(k)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    assert not list(folder.glob("*.tmp"))
    for k in (1, 2, 3, 4, 5):
        assert compiles(k) == (0, 1, 0)
