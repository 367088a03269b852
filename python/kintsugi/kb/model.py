"""What an entry is. The published JSON Schema (2020-12) is made from these classes."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Rate = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(min_length=1)]
Language = Literal["en", "zh"]
EntryId = Annotated[str, Field(pattern=r"^[a-z0-9]+/[a-z0-9][a-z0-9-]*$")]
SCHEMA_FILE = Path(__file__).parent / "schema.json"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Version(_Part):
    version: Text
    introduced: str | None = None
    deprecated: str | None = None
    removed: str | None = None
    behavior_change: Annotated[str, Field(min_length=1)]
    """What is another in this release than in the one before it: measured, or that nothing is known."""
    status: Literal["active", "fixed", "removed", "cited"] = "active"


class Measured(_Part):
    """What executed reproducers said: `failures` of `n` runs."""

    n: Annotated[int, Field(ge=1)]
    failures: Annotated[int, Field(ge=0)]
    rate: Rate
    """failures / n"""
    interval: tuple[Rate, Rate]
    """95 % Wilson score interval of the rate."""

    @model_validator(mode="after")
    def _consistent(self) -> Measured:
        if self.failures > self.n or abs(self.rate - self.failures / self.n) > 1e-3:
            raise ValueError("failures, n and rate don't fit together")
        return self


class Apply(_Part):
    """How to apply a remedy to the reproducer's problem: another function of its file, or other settings."""

    function: str | None = None
    options: dict[str, Any] = {}
    """Arguments of torch.compile and kintsugi.compile."""
    config: dict[str, Any] = {}
    """Settings of torch._dynamo.config."""
    kintsugi: dict[str, Any] = {}
    """Settings of kintsugi.config."""
    goal: Literal["whole", "same", "gone"] = "whole"
    """whole: one graph with the results of the problem. same: the results of the problem, whatever the graphs. gone: as
    whole, and the message that the entry is about does not appear."""


class Remedy(_Part):
    action: Text
    condition: str = ""
    sources: list[str] = []
    cited: bool = False
    """The rate was not measured: it is what a source says."""
    apply: Apply | None = None
    measured: dict[str, Measured] = {}
    """By system: torch.compile, kintsugi."""


class Workaround(Remedy):
    how: Text
    success_rate: Rate | None = None


class DeadEnd(Remedy):
    why_fails: Text
    fail_rate: Rate | None = None


class DeadEndText(_Part):
    action: Text
    why_fails: Text


class Transitions(_Part):
    leads_to: list[EntryId] = []
    preceded_by: list[EntryId] = []
    frequently_confused_with: list[EntryId] = []


class Expectation(_Part):
    torch_compile: str | None = None
    """A regular expression for the first line of a break reason or error; null: nothing is expected."""
    kintsugi: str | None = None
    """A code, or a regular expression for an error; null: captured whole."""
    eager: str | None = None
    """A regular expression for the error that eager execution raises, too."""


class Reproducer(_Part):
    file: Text
    function: Text = "problem"
    expect: Expectation
    options: dict[str, Any] = {}


class Member(_Part):
    """One of torch's reasons for a break that an entry stands for."""

    id: Annotated[str, Field(pattern=r"^GB[0-9]{4}$")]
    message: Text
    function: str | None = None
    """Of the reproducer's file, a program that torch.compile breaks for this reason."""
    eager: str = ""
    """The exception that eager mode raises for it, too."""
    measured: dict[str, Measured] = {}
    """Failures are, of torch.compile, runs without the reason, and, of kintsugi, runs that were not captured whole."""
    note: str = ""
    """Why no program of ours gives it; it stands here for its cause, which is the entry's."""

    @model_validator(mode="after")
    def _consistent(self) -> Member:
        if (self.function is None) != bool(self.note):
            raise ValueError(f"{self.id}: either a function, or a note that says why there is none")
        return self


class Evidence(_Part):
    date: datetime.date
    versions: dict[str, str]
    problem: dict[str, Measured]
    """By system: runs in which the problem did not show as expected are failures."""
    whole: dict[str, Measured]
    """By system: runs of the unchanged problem that were not captured in one graph with eager's results."""


class Entry(_Part):
    """One kind of message: what it means, what helps, what does not."""

    id: EntryId
    signature: Text
    signature_zh: Text
    regex: Text
    """In RE2's syntax, looked for in each line."""
    examples: Annotated[list[Text], Field(min_length=1)]
    """Real lines that the entry has to match."""
    aliases: list[str] = []
    error_code: str | None = None
    domain: Literal["pytorch", "kintsugi"]
    category: Text
    subcategory: str | None = None
    tags: list[str] = []
    locale: Language = "en"
    root_cause: Text
    root_cause_zh: Text
    root_cause_type: Text
    versions: Annotated[list[Version], Field(min_length=1)]
    os_specific: Annotated[dict[str, str], Field(min_length=1)]
    """By system, what was seen on it; a system on which nothing was run says so."""
    dead_ends: list[DeadEnd] = []
    dead_ends_zh: list[DeadEndText] = []
    workarounds: list[Workaround] = []
    workarounds_zh: list[Text] = []
    transition_graph: Transitions
    official_doc_url: Text
    """A page on the web, or the path of one in Kintsugi's tree."""
    official_doc_section: Text
    notes: list[str] = []
    """What the sources get wrong, with the evidence."""
    notes_zh: list[str] = []
    members: list[Member] = []
    """Of an entry that stands for several of torch's reasons with one cause: each of them."""
    left_empty: dict[Literal["dead_ends", "workarounds", "reproducer"], str] = {}
    """Fields that have nothing in them, and why."""
    reproducer: Reproducer | None = None
    evidence: Evidence | None = None
    verification_tier: Literal["executed", "cited"]
    confidence: Rate
    fix_success_rate: Rate | None = None
    resolvable: Literal["yes", "partial", "no", "not_needed"]
    evidence_count: Annotated[int, Field(ge=0)]
    first_seen: datetime.date
    last_confirmed: datetime.date | None = None
    last_updated: datetime.date

    @field_validator("root_cause_type")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if value.strip().lower() in ("generic", "unknown", "other"):
            raise ValueError("root_cause_type has to name a cause")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Entry:
        if len(self.workarounds) != len(self.workarounds_zh):
            raise ValueError("workarounds and workarounds_zh differ in length")
        if len(self.dead_ends) != len(self.dead_ends_zh):
            raise ValueError("dead_ends and dead_ends_zh differ in length")
        for field in ("dead_ends", "workarounds", "reproducer"):
            if bool(getattr(self, field)) == (field in self.left_empty):
                raise ValueError(f"{field}: filled, or left_empty says why not")
        for text in (self.signature_zh, self.root_cause_zh, *self.workarounds_zh):
            if not re.search(r"[\u4e00-\u9fff]", text):
                raise ValueError(f"not Chinese: {text!r}")
        if self.verification_tier == "executed" and self.evidence is None:
            raise ValueError("verification_tier is executed, but there is no evidence")
        return self

    def dumps(self) -> str:
        """The file's text."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False, indent=2) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema of an entry."""
    made = Entry.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:kintsugi:kb-entry:1",
        **made,
    }
