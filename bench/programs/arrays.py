"""numpy beside torch: normalizing, sampling, augmenting, padding."""

from __future__ import annotations

import numpy as np
import torch

from bench.programs import Compile, Step, program


@program
def normalized_by_numpy(compile: Compile) -> Step:
    layer = torch.nn.Linear(12, 4)

    @compile
    def encode(raw: np.ndarray) -> torch.Tensor:
        centred = (raw - raw.mean(axis=0)) / (raw.std(axis=0) + 1e-6)
        return layer(torch.from_numpy(np.clip(centred, -3, 3).astype(np.float32)))

    arrays = [np.random.default_rng(i).normal(size=(16, 12)) for i in range(8)]
    return lambda k: encode(arrays[k % 8])


@program
def numpy_random_batches(compile: Compile) -> Step:
    rng = np.random.default_rng(0)
    data = torch.linspace(-1, 1, 400).view(100, 4)
    layer = torch.nn.Linear(4, 2)

    @compile
    def batch() -> torch.Tensor:
        picked = rng.choice(100, size=8, replace=False)
        noise = torch.from_numpy(rng.normal(scale=0.1, size=(8, 4)).astype(np.float32))
        return layer(data[torch.from_numpy(picked)] + noise)

    return lambda _: batch()


@program
def structured_records(compile: Compile) -> Step:
    kind = np.dtype([("id", "i4"), ("position", "f4", 3), ("mass", "f4")])
    records = np.zeros(30, kind)
    records["position"] = np.arange(90).reshape(30, 3)
    records["mass"] = np.arange(30) % 4 + 1

    @compile
    def centre(low: int, high: int) -> torch.Tensor:
        part = records[low:high]
        position = torch.from_numpy(np.ascontiguousarray(part["position"]))
        mass = torch.from_numpy(part["mass"].copy())
        return (position * mass[:, None]).sum(0) / mass.sum()

    return lambda k: centre(k % 10, k % 10 + 12)


@program
def spectra(compile: Compile) -> Step:
    window = np.hanning(64)
    layer = torch.nn.Linear(33, 8)

    @compile
    def features(signal: np.ndarray) -> torch.Tensor:
        spectrum = np.abs(np.fft.rfft(signal * window))
        peak = int(np.argmax(spectrum))
        return layer(torch.from_numpy(np.log1p(spectrum)).float()) + peak

    signals = [np.sin(np.arange(64) * (i + 1) / 9) for i in range(12)]
    return lambda k: features(signals[k % 12])


@program
def windows_that_slide(compile: Compile) -> Step:
    series = np.cumsum(np.random.default_rng(1).normal(size=300)).astype(np.float32)
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

    @compile
    def forecast(start: int) -> torch.Tensor:
        part = np.lib.stride_tricks.sliding_window_view(series[start : start + 40], 16)
        return net(torch.from_numpy(part.copy())).squeeze(-1).mean()

    return lambda k: forecast(k * 3 % 250)


@program
def crops_and_flips(compile: Compile) -> Step:
    rng = np.random.default_rng(2)
    images = rng.random((6, 3, 20, 20), dtype=np.float32)
    net = torch.nn.Conv2d(3, 4, 3)

    @compile
    def augment(image: np.ndarray) -> torch.Tensor:
        top, left = rng.integers(0, 4, size=2)
        image = image[:, top : top + 16, left : left + 16]
        if rng.random() < 0.5:
            image = image[:, :, ::-1]
        image = image * rng.uniform(0.8, 1.2)
        return net(torch.from_numpy(np.ascontiguousarray(image, dtype=np.float32))[None]).mean((2, 3))

    return lambda k: augment(images[k % 6])


@program
def torch_augmentation(compile: Compile) -> Step:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(6, 3, 20, 20, generator=generator)

    @compile
    def augment(image: torch.Tensor) -> torch.Tensor:
        top = int(torch.randint(0, 4, (1,), generator=generator))
        left = int(torch.randint(0, 4, (1,), generator=generator))
        image = image[:, top : top + 16, left : left + 16]
        if torch.rand(1, generator=generator) < 0.5:
            image = image.flip(-1)
        if torch.rand(1, generator=generator) < 0.3:
            image = image + torch.randn(image.shape, generator=generator) * 0.05
        mean = image.mean((1, 2), keepdim=True)
        return (image - mean) * float(torch.empty(1).uniform_(0.8, 1.2, generator=generator)) + mean

    return lambda k: augment(images[k % 6])


@program
def padded_batches(compile: Compile) -> Step:
    rows = [list(range(i % 5 + 2)) for i in range(40)]
    embed = torch.nn.Embedding(16, 8)
    cell = torch.nn.GRU(8, 8, batch_first=True)

    @compile
    def encode(batch: list[list[int]]) -> torch.Tensor:
        tensors = [torch.tensor(row) for row in batch]
        padded = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)
        lengths = torch.tensor([len(row) for row in batch])
        out, _ = cell(embed(padded))
        return out[torch.arange(len(batch)), lengths - 1]

    return lambda k: encode(rows[k % 30 : k % 30 + 6])


@program
def histograms(compile: Compile) -> Step:
    edges = np.linspace(-2, 2, 11)

    @compile
    def describe(x: torch.Tensor) -> torch.Tensor:
        counts, _ = np.histogram(x.numpy(), bins=edges)
        quantiles = np.quantile(x.numpy(), [0.1, 0.5, 0.9])
        return torch.cat([torch.from_numpy(counts).float(), torch.from_numpy(quantiles).float()])

    xs = [torch.linspace(-2, 2, 50) * (i + 1) / 6 for i in range(6)]
    return lambda k: describe(xs[k % 6])


@program
def neighbours_by_sorting(compile: Compile) -> Step:
    points = np.random.default_rng(3).random((60, 2)).astype(np.float32)

    @compile
    def nearest(k: int) -> torch.Tensor:
        distances = np.linalg.norm(points - points[k], axis=1)
        order = np.argsort(distances)[1:6]
        return torch.from_numpy(points[order]).mean(0) - torch.from_numpy(points[k])

    return lambda k: nearest(k % 60)
