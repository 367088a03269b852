"""Models in plain torch, written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import nn

from bench.models.spec import Dims, Inputs, ModelSpec


class BasicBlock(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inner != outer:
            self.downsample = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self, width: int, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks: list[nn.Module] = []
        inner = width
        for stage in range(4):
            outer = width << stage
            blocks += [BasicBlock(inner, outer, 1 if stage == 0 else 2), BasicBlock(outer, outer, 1)]
            inner = outer
        self.layers = nn.Sequential(*blocks)
        self.fc = nn.Linear(inner, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers(self.stem(x))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class DoubleConv(nn.Sequential):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__(
            nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(inplace=True),
            nn.Conv2d(outer, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(inplace=True),
        )  # fmt: skip


class UNet(nn.Module):
    """Down and up with skips kept in a list: containers made in the forward."""

    def __init__(self, width: int, depth: int = 3) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList([DoubleConv(a, b) for a, b in zip([3, *widths], widths[:-1], strict=False)])
        self.bottom = DoubleConv(widths[-2], widths[-1])
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths[:-1], widths[1:], strict=True)][::-1]
        )
        self.merge = nn.ModuleList([DoubleConv(2 * a, a) for a in widths[:-1]][::-1])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


class HandLSTM(nn.Module):
    """An LSTM from its gates: a Python loop over time and over layers."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.cells = nn.ModuleList([nn.Linear(2 * hidden, 4 * hidden) for _ in range(layers)])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        state = [
            (x.new_zeros(x.shape[0], self.hidden), x.new_zeros(x.shape[0], self.hidden)) for _ in self.cells
        ]
        outputs = []
        for step in x.unbind(1):
            value = step
            for index, cell in enumerate(self.cells):
                h, c = state[index]
                i, f, g, o = cell(torch.cat([value, h], dim=-1)).chunk(4, dim=-1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                value = torch.sigmoid(o) * torch.tanh(c)
                state[index] = (value, c)
            outputs.append(value)
        return torch.stack(outputs, dim=1), state


class Generator(nn.Module):
    """The generator of DCGAN."""

    def __init__(self, latent: int, width: int) -> None:
        super().__init__()
        plan = [(latent, 4 * width, 4, 1, 0), (4 * width, 2 * width, 4, 2, 1), (2 * width, width, 4, 2, 1)]
        layers: list[nn.Module] = []
        for inner, outer, kernel, stride, pad in plan:
            layers += [
                nn.ConvTranspose2d(inner, outer, kernel, stride, pad, bias=False),
                nn.BatchNorm2d(outer),
                nn.ReLU(True),
            ]
        self.main = nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.main(z[:, :, None, None])


class GraphLayer(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.message = nn.Linear(2 * hidden, hidden)
        self.update = nn.Linear(3 * hidden, hidden)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges[0], edges[1]
        messages = F.relu(self.message(torch.cat([nodes[source], nodes[target]], dim=-1)))
        total = torch.zeros_like(nodes).index_add(0, target, messages)
        index = target[:, None].expand_as(messages)
        largest = torch.zeros_like(nodes).scatter_reduce(0, index, messages, reduce="amax", include_self=True)
        return nodes + F.relu(self.update(torch.cat([nodes, total, largest], dim=-1)))


class GraphNetwork(nn.Module):
    """Message passing with index_add and scatter_reduce, then a sum per graph."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Linear(8, hidden)
        self.layers = nn.ModuleList([GraphLayer(hidden) for _ in range(layers)])
        self.head = nn.Linear(hidden, 3)

    def forward(
        self, nodes: torch.Tensor, edges: torch.Tensor, graph: torch.Tensor, graphs: int
    ) -> torch.Tensor:
        nodes = self.embed(nodes)
        for layer in self.layers:
            nodes = layer(nodes, edges)
        pooled = nodes.new_zeros(graphs, nodes.shape[-1]).index_add_(0, graph, nodes)
        return F.log_softmax(self.head(pooled), dim=-1)


class MLP(nn.Sequential):
    """The smallest useful model, with dropout, for the overhead of training."""

    def __init__(self, hidden: int, layers: int) -> None:
        parts: list[nn.Module] = []
        for _ in range(layers):
            parts += [nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Dropout(0.1)]
        super().__init__(*parts)


def _images(scale: int = 1) -> Callable[[nn.Module, Dims], Inputs]:
    def make(_: nn.Module, d: Dims) -> Inputs:
        return (torch.randn(d.batch, 3, d.image * scale, d.image * scale),), {}

    return make


def _sequence(_: nn.Module, d: Dims) -> Inputs:
    return (torch.randn(d.batch, d.seq, d.hidden),), {}


def _latent(_: nn.Module, d: Dims) -> Inputs:
    return (torch.randn(d.batch, d.hidden),), {}


def _graph(_: nn.Module, d: Dims) -> Inputs:
    count = 16 * d.batch * max(1, d.seq // 8)
    graph = torch.arange(count) * d.batch // count
    edges = torch.randint(0, count, (2, 4 * count))
    return (torch.randn(count, 8), edges, graph, d.batch), {}


def specs() -> Iterator[ModelSpec]:
    def spec(
        name: str,
        build: Callable[[Dims], nn.Module],
        inputs: Callable[[nn.Module, Dims], Inputs],
        quick: bool,
    ) -> ModelSpec:
        return ModelSpec(name, "plain torch", build, inputs, quick, transformers=False)

    yield spec("resnet18", lambda d: ResNet18(d.channels), _images(), True)
    yield spec("unet", lambda d: UNet(max(4, d.channels // 4)), _images(), False)
    yield spec("lstm-by-hand", lambda d: HandLSTM(d.hidden, d.layers), _sequence, True)
    yield spec("dcgan", lambda d: Generator(d.hidden, 2 * d.channels), _latent, False)
    yield spec("gnn-scatter", lambda d: GraphNetwork(d.hidden, d.layers), _graph, True)
    yield spec("mlp", lambda d: MLP(d.hidden * (4 if d.hidden > 64 else 1), d.layers), _mlp_input, True)


def _mlp_input(_: nn.Module, d: Dims) -> Inputs:
    wide = d.hidden * (4 if d.hidden > 64 else 1)
    return (torch.randn(d.batch * d.seq, wide),), {}
