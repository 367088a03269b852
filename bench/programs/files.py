"""Files and what is kept in them: lines, csv, json, sqlite, archives, logs."""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import pathlib
import pickle
import sqlite3
import tempfile

import numpy as np
import torch

from bench.programs import Compile, Step, program


def _folder() -> pathlib.Path:
    """A folder that ends with the process, which is a child of the bench's."""
    return pathlib.Path(tempfile.mkdtemp(prefix="programs-"))


@program
def lines_of_a_file(compile: Compile) -> Step:
    path = _folder() / "lines"
    path.write_text("".join(f"{i},{i * i % 97},{i % 7}\n" for i in range(100)))

    @compile
    def load(scale: torch.Tensor) -> torch.Tensor:
        rows = []
        with open(path) as file:
            for line in file:
                rows.append([float(part) for part in line.strip().split(",")])
        return torch.tensor(rows).mean(0) * scale

    scale = torch.ones(3)
    return lambda _: load(scale)


@program
def rows_of_csv(compile: Compile) -> Step:
    path = _folder() / "rows.csv"
    path.write_text("name,size,weight\n" + "".join(f"n{i},{i * 3 % 11},{i / 7:.3f}\n" for i in range(60)))
    layer = torch.nn.Linear(2, 4)

    @compile
    def load() -> torch.Tensor:
        with open(path, newline="") as file:
            rows = [(int(row["size"]), float(row["weight"])) for row in csv.DictReader(file)]
        return layer(torch.tensor(rows, dtype=torch.float32)).relu().sum(0)

    return lambda _: load()


@program
def csv_that_is_written(compile: Compile) -> Step:
    @compile
    def dump(x: torch.Tensor) -> str:
        y = (x * 2).cumsum(0)
        out = io.StringIO()
        writer = csv.writer(out)
        for i, row in enumerate(y.tolist()):
            writer.writerow([i, *(f"{value:.2f}" for value in row)])
        return out.getvalue()

    return lambda k: dump(torch.full((12, 4), float(k)))


@program
def json_documents(compile: Compile) -> Step:
    texts = [
        json.dumps({"id": i, "tags": ["a", "b"][: i % 3], "boxes": [[i, j, i + j, 2 * j] for j in range(8)]})
        for i in range(40)
    ]

    @compile
    def areas(text: str) -> torch.Tensor:
        document = json.loads(text)
        boxes = torch.tensor(document["boxes"], dtype=torch.float32)
        return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) + len(document["tags"])

    return lambda k: areas(texts[k % len(texts)])


@program
def json_lines_appended(compile: Compile) -> Step:
    path = _folder() / "log.jsonl"
    layer = torch.nn.Linear(8, 3)

    @compile
    def observe(x: torch.Tensor, k: int) -> torch.Tensor:
        y = layer(x).sigmoid()
        with path.open("a") as file:
            file.write(json.dumps({"step": k, "scores": [round(v, 4) for v in y.tolist()]}) + "\n")
        return y

    return lambda k: observe(torch.full((8,), k % 5 / 5), k)


def _database() -> sqlite3.Connection:
    base = sqlite3.connect(":memory:")
    base.execute("create table points (id integer primary key, kind text, x real, y real)")
    rows = [(i, "abc"[i % 3], i * 0.5, i * i % 13) for i in range(300)]
    base.executemany("insert into points values (?, ?, ?, ?)", rows)
    return base


@program
def sqlite_queries(compile: Compile) -> Step:
    base = _database()

    @compile
    def centre(kind: str, low: int) -> torch.Tensor:
        query = "select x, y from points where kind = ? and id >= ? limit 40"
        rows = base.execute(query, (kind, low)).fetchall()
        return torch.tensor(rows).mean(0)

    return lambda k: centre("abc"[k % 3], k % 100)


@program
def sqlite_writes(compile: Compile) -> Step:
    base = _database()

    @compile
    def move(k: int, x: torch.Tensor) -> torch.Tensor:
        step = (x * 0.1).tanh()
        dx, dy = step.mean().item(), step.std().item()
        base.execute("update points set x = x + ?, y = y + ? where id = ?", (dx, dy, k % 300))
        (total,) = base.execute("select sum(x) from points").fetchone()
        return step * total

    x = torch.linspace(-1, 1, 32)
    return lambda k: move(k, x)


@program
def pickled_batches(compile: Compile) -> Step:
    batches = [pickle.dumps({"x": np.full((4, 8), i, np.float32), "y": [i % 3] * 4}) for i in range(20)]
    layer = torch.nn.Linear(8, 3)

    @compile
    def loss(data: bytes) -> torch.Tensor:
        batch = pickle.loads(data)
        return torch.nn.functional.cross_entropy(
            layer(torch.from_numpy(batch["x"])), torch.tensor(batch["y"])
        )

    return lambda k: loss(batches[k % len(batches)])


@program
def packed_bytes(compile: Compile) -> Step:
    packed = [gzip.compress(bytes((i * j) % 251 for j in range(400))) for i in range(20)]

    @compile
    def unpack(data: bytes) -> torch.Tensor:
        raw = bytearray(gzip.decompress(data))
        return torch.frombuffer(raw, dtype=torch.uint8).float().view(20, 20).mean(0)

    return lambda k: unpack(packed[k % len(packed)])


@program
def records_of_a_logger(compile: Compile) -> Step:
    out = io.StringIO()
    logger = logging.Logger("program")
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    layer = torch.nn.Linear(16, 16)

    @compile
    def step(x: torch.Tensor, k: int) -> torch.Tensor:
        y = layer(x).relu()
        logger.info("step %d: mean %.4f", k, y.mean())
        if k % 10 == 0:
            logger.warning("every tenth: %s", tuple(y.shape))
        return layer(y)

    return lambda k: step(torch.full((2, 16), k % 3 / 3), k)


@program
def files_of_a_folder(compile: Compile) -> Step:
    folder = _folder()
    for i in range(12):
        (folder / f"part{i}.{'txt' if i % 2 else 'dat'}").write_bytes(bytes(i + 1))

    @compile
    def sizes(suffix: str) -> torch.Tensor:
        found = sorted(path for path in folder.iterdir() if path.suffix == suffix)
        return torch.tensor([path.stat().st_size for path in found]).float().cumsum(0)

    return lambda k: sizes(".txt" if k % 2 else ".dat")


@program
def checkpoints(compile: Compile) -> Step:
    layer = torch.nn.Linear(16, 16)

    @compile
    def step(x: torch.Tensor) -> torch.Tensor:
        y = layer(x)
        buffer = io.BytesIO()
        torch.save({"y": y.detach()}, buffer)
        buffer.seek(0)
        return torch.load(buffer)["y"] + y

    return lambda k: step(torch.full((4, 16), k % 5 / 5))


@program
def arrays_in_an_archive(compile: Compile) -> Step:
    path = _folder() / "data.npz"
    np.savez(path, **{f"a{i}": np.arange(64, dtype=np.float32) * i for i in range(4)})

    @compile
    def load(name: str) -> torch.Tensor:
        with np.load(path) as archive:
            return torch.from_numpy(archive[name]).view(8, 8).softmax(-1)

    return lambda k: load(f"a{k % 4}")
