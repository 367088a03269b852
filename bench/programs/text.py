"""Text: words, regular expressions, formats, tokenizers."""

from __future__ import annotations

import collections
import configparser
import hashlib
import re
import string
import textwrap
import zlib

import torch

from bench.programs import Compile, Step, program

_WORDS = "graph trace guard exit tensor loop frame stack heap code node edge value type line word".split()


def sentences(count: int = 50, length: int = 24) -> list[str]:
    """Texts that differ, without a random generator."""
    return [
        " ".join(
            _WORDS[(i * 7 + j * j * 3 + i * j) % len(_WORDS)] + str(i * j % 5) for j in range(length - i % 7)
        )
        for i in range(count)
    ]


@program
def word_lengths(compile: Compile) -> Step:
    texts = sentences()

    @compile
    def features(text: str, weights: torch.Tensor) -> torch.Tensor:
        words = text.split()
        return weights * len(words) + sum(len(word) for word in words) / len(set(words))

    weights = torch.linspace(0, 1, 64)
    return lambda k: features(texts[k % len(texts)], weights)


@program
def bag_of_words(compile: Compile) -> Step:
    texts = sentences()
    vocabulary = {word: i for i, word in enumerate(sorted({w for t in texts for w in t.split()}))}
    classify = torch.nn.Linear(len(vocabulary), 4)

    @compile
    def score(text: str) -> torch.Tensor:
        counts = collections.Counter(text.split())
        row = torch.zeros(len(vocabulary))
        for word, count in counts.items():
            row[vocabulary[word]] = count
        return classify(row).softmax(-1)

    return lambda k: score(texts[k % len(texts)])


@program
def embedding_of_words(compile: Compile) -> Step:
    texts = sentences()
    vocabulary = {word: i for i, word in enumerate(sorted({w for t in texts for w in t.split()}))}
    embed = torch.nn.EmbeddingBag(len(vocabulary), 32)
    layer = torch.nn.Linear(32, 8)

    @compile
    def encode(batch: list[str]) -> torch.Tensor:
        ids = [vocabulary[word] for text in batch for word in text.split()]
        offsets, at = [], 0
        for text in batch:
            offsets.append(at)
            at += len(text.split())
        return layer(embed(torch.tensor(ids), torch.tensor(offsets))).tanh()

    return lambda k: encode([texts[(k + i) % len(texts)] for i in range(4)])


@program
def fields_by_pattern(compile: Compile) -> Step:
    pattern = re.compile(
        r"(?P<host>[\w.]+) \[(?P<time>\d+)\] \"(?P<verb>GET|PUT) (?P<path>/\S*)\" (?P<size>\d+)"
    )
    lines = [
        f'host{i % 9}.example [{1000 + i * 17}] "{"GET" if i % 3 else "PUT"} /a/{i * 31 % 97}" {i * i % 5000}'
        for i in range(80)
    ]

    @compile
    def rates(part: list[str], scale: torch.Tensor) -> torch.Tensor:
        sizes = []
        for line in part:
            found = pattern.match(line)
            if found is not None and found["verb"] == "GET":
                sizes.append(float(found["size"]))
        return torch.tensor(sizes).mean() * scale

    scale = torch.ones(16)
    return lambda k: rates(lines[k % 60 : k % 60 + 20], scale)


@program
def substitution_by_function(compile: Compile) -> Step:
    texts = sentences()

    @compile
    def masked(text: str, x: torch.Tensor) -> tuple[str, torch.Tensor]:
        hidden: list[int] = []

        def hide(found: re.Match[str]) -> str:
            hidden.append(int(found[0]))
            return "#" * len(found[0])

        result = re.sub(r"\d+", hide, text)
        return result, x + sum(hidden)

    x = torch.zeros(8)
    return lambda k: masked(texts[k % len(texts)], x)


@program
def report_of_numbers(compile: Compile) -> Step:
    layer = torch.nn.Linear(16, 4)

    @compile
    def report(x: torch.Tensor, k: int) -> str:
        y = layer(x).softmax(-1)
        best = int(y.argmax())
        return f"{k:05d} best={best} p={y[best].item():.3f} all={', '.join(f'{v:.2f}' for v in y.tolist())}"

    return lambda k: report(torch.full((16,), k % 13 / 13), k)


@program
def hashed_ngrams(compile: Compile) -> Step:
    texts = sentences()
    table = torch.randn(256, 16, generator=torch.Generator().manual_seed(0))

    @compile
    def encode(text: str) -> torch.Tensor:
        rows = [zlib.crc32(text[i : i + 3].encode()) % 256 for i in range(0, len(text) - 3, 3)]
        return table[torch.tensor(rows)].mean(0)

    return lambda k: encode(texts[k % len(texts)])


@program
def settings_from_text(compile: Compile) -> Step:
    texts = [
        f"[net]\nwidth = {8 + i % 3}\nscale = {i / 7:.3f}\n[data]\nnames = a{i}, b, c\n" for i in range(20)
    ]

    @compile
    def build(text: str, x: torch.Tensor) -> torch.Tensor:
        settings = configparser.ConfigParser()
        settings.read_string(text)
        names = [name.strip() for name in settings["data"]["names"].split(",")]
        return x[: settings.getint("net", "width")] * settings.getfloat("net", "scale") + len(names)

    x = torch.ones(16)
    return lambda k: build(texts[k % len(texts)], x)


@program
def templates_and_wrapping(compile: Compile) -> Step:
    texts = sentences(20, 40)
    template = string.Template("$title: $body")

    @compile
    def page(text: str, k: int, x: torch.Tensor) -> tuple[list[str], torch.Tensor]:
        lines = textwrap.wrap(template.substitute(title=f"page {k}", body=text), 60)
        return lines, x * len(lines)

    x = torch.ones(4)
    return lambda k: page(texts[k % len(texts)], k, x)


@program
def digests(compile: Compile) -> Step:
    @compile
    def stamp(k: int, x: torch.Tensor) -> tuple[str, torch.Tensor]:
        y = x.mul(k).cumsum(0)
        digest = hashlib.sha256(str(k).encode())
        digest.update(b"more")
        return digest.hexdigest(), y + digest.digest()[0]

    x = torch.ones(32)
    return lambda k: stamp(k, x)


@program(needs=("tokenizers",))
def word_pieces(compile: Compile) -> Step:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    texts = sentences()
    words = sorted({word for text in texts for word in text.split()})
    tokenizer = Tokenizer(WordLevel({"?": 0} | {word: i + 1 for i, word in enumerate(words)}, unk_token="?"))
    tokenizer.pre_tokenizer = Whitespace()
    embed = torch.nn.Embedding(len(words) + 1, 32)

    @compile
    def encode(batch: list[str]) -> torch.Tensor:
        encoded = tokenizer.encode_batch(batch)
        length = max(len(one.ids) for one in encoded)
        ids = torch.zeros(len(batch), length, dtype=torch.long)
        for row, one in enumerate(encoded):
            ids[row, : len(one.ids)] = torch.tensor(one.ids)
        return embed(ids).mean(1)

    return lambda k: encode([texts[(k + i) % len(texts)] for i in range(4)])
