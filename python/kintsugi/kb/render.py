"""Entries as text for people: Markdown, HTML, and Rich for terminals; English or Chinese."""

from __future__ import annotations

from typing import Any

from .model import Entry, Language, Measured, Member, Remedy, Workaround

WORDS: dict[str, tuple[str, str]] = {
    "cause": ("Root cause", "根因分析"),
    "workarounds": ("What helps", "解决方案"),
    "dead_ends": ("What does not help", "无效尝试"),
    "versions": ("Versions", "版本兼容性"),
    "notes": ("Notes", "说明"),
    "evidence": ("Evidence", "证据"),
    "related": ("Related", "相关条目"),
    "works": ("works in", "成功率"),
    "fails": ("fails in", "失败率"),
    "cited": ("cited, not measured", "引用，未测量"),
    "unmeasured": ("not measured", "未测量"),
    "leads_to": ("leads to", "可能导致"),
    "preceded_by": ("comes after", "前置条目"),
    "frequently_confused_with": ("often confused with", "容易混淆"),
    "doc": ("Documentation", "官方文档"),
    "runs": ("runs:", "运行次数："),
    "unchanged": ("the program as it is, captured whole:", "未修改的程序被整图捕获："),
    "active": ("active", "有效"),
    "fixed": ("fixed", "已修复"),
    "removed": ("removed", "已移除"),
    "nothing": ("No known message was found.", "没有找到已知的消息。"),
    "members": ("Stands for", "代表的断图原因"),
    "shown": ("shown by a program in", "程序复现"),
    "systems": ("Systems", "操作系统"),
}


def word(key: str, language: Language) -> str:
    return WORDS[key][language == "zh"]


def signature(entry: Entry, language: Language) -> str:
    return entry.signature_zh if language == "zh" else entry.signature


def cause(entry: Entry, language: Language) -> str:
    return entry.root_cause_zh if language == "zh" else entry.root_cause


def _interval(measured: Measured, success: bool) -> str:
    low, high = measured.interval
    if success:
        low, high = 1 - high, 1 - low
    return f"{100 * low:.0f}–{100 * high:.0f} %"


def rate(entry: Entry, remedy: Remedy, language: Language) -> str:
    """`works in 100 % (n = 9, 95 %: 70–100 %; kintsugi 100 %)`, or that it is cited."""
    success = isinstance(remedy, Workaround)
    value = remedy.success_rate if isinstance(remedy, Workaround) else getattr(remedy, "fail_rate", None)
    label = word("works" if success else "fails", language)
    if not remedy.measured:
        return (f"{label} {100 * value:.0f} %, " if value is not None else "") + word(
            "cited" if remedy.cited else "unmeasured", language
        )
    subject = "kintsugi" if entry.domain == "kintsugi" else "torch.compile"
    parts = []
    for system, found in remedy.measured.items():
        share = 1 - found.rate if success else found.rate
        text = f"{system} {100 * share:.0f} %"
        if system == subject:
            text += f" (n = {found.n}, 95 %: {_interval(found, success)})"
        parts.append(text)
    return f"{label} " + "; ".join(parts)


def remedies(entry: Entry, language: Language) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """(action, rate) of each workaround; (action, why, rate) of each dead end."""
    works = [
        (zh if language == "zh" else work.action, rate(entry, work, language))
        for work, zh in zip(entry.workarounds, entry.workarounds_zh, strict=True)
    ]
    ends = [
        (
            zh.action if language == "zh" else end.action,
            zh.why_fails if language == "zh" else end.why_fails,
            rate(entry, end, language),
        )
        for end, zh in zip(entry.dead_ends, entry.dead_ends_zh, strict=True)
    ]
    return works, ends


def notes(entry: Entry, language: Language) -> list[str]:
    return entry.notes_zh if language == "zh" else entry.notes


def evidence(entry: Entry, language: Language) -> str:
    if entry.evidence is None:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in entry.evidence.versions.items())
    whole = ", ".join(
        f"{system} {found.n - found.failures}/{found.n}" for system, found in entry.evidence.whole.items()
    )
    runs = f"{word('runs', language)} {entry.evidence_count}"
    return f"{entry.evidence.date}, {versions}; {runs}; {word('unchanged', language)} {whole}"


def _member(member: Member, language: Language) -> str:
    text = f"- `{member.id}` {member.message}"
    runs = member.measured.get("torch.compile")
    if runs is None:
        return f"{text} *({word('unmeasured', language)})*"
    return f"{text} *({word('shown', language)} {runs.n - runs.failures}/{runs.n})*"


def to_markdown(entry: Entry, language: Language) -> str:
    works, ends = remedies(entry, language)
    lines = [f"# {signature(entry, language)}", "", f"`{entry.id}`", "", f"## {word('cause', language)}", ""]
    lines += [cause(entry, language), ""]
    if works:
        lines += [f"## {word('workarounds', language)}", ""]
        lines += [f"- {action} *({share})*" for action, share in works] + [""]
    if ends:
        lines += [f"## {word('dead_ends', language)}", ""]
        lines += [f"- {action} *({share})* {why}" for action, why, share in ends] + [""]
    if notes(entry, language):
        lines += [f"## {word('notes', language)}", "", *(f"- {note}" for note in notes(entry, language)), ""]
    lines += [f"## {word('versions', language)}", ""]
    lines += [
        f"- {v.version}: {word(v.status, language)}"
        + (f" ({v.behavior_change})" if v.behavior_change else "")
        for v in entry.versions
    ]
    related = [
        f"- {word(kind, language)}: {', '.join(f'`{i}`' for i in ids)}"
        for kind, ids in entry.transition_graph.model_dump().items()
        if ids
    ]
    if related:
        lines += ["", f"## {word('related', language)}", "", *related]
    if entry.members:
        lines += ["", f"## {word('members', language)}", "", *(_member(m, language) for m in entry.members)]
    systems = "; ".join(f"{name}: {text}" for name, text in entry.os_specific.items())
    lines += ["", f"{word('systems', language)}: {systems}"]
    url = f"<{entry.official_doc_url}>" if "://" in entry.official_doc_url else f"`{entry.official_doc_url}`"
    lines += ["", f"{word('doc', language)}: {url}, {entry.official_doc_section}"]
    if entry.evidence:
        lines += ["", f"{word('evidence', language)}: {evidence(entry, language)}"]
    return "\n".join(lines) + "\n"


def to_html(entry: Entry, language: Language) -> str:
    """The Markdown as an HTML fragment; nothing of the entry is taken for markup."""
    return markdown_to_html(to_markdown(entry, language))


def markdown_to_html(text: str) -> str:
    """An HTML fragment, without any markup that the text may have."""
    from markdown_it import MarkdownIt

    return str(MarkdownIt("js-default").render(text))


def occurrence(line: int, count: int, language: Language) -> str:
    """`line 3, 2 times`"""
    if language == "zh":
        return f"第 {line} 行，共 {count} 次"
    return f"line {line}, {count} time" + ("s" if count != 1 else "")


def to_rich(entry: Entry, language: Language) -> Any:
    """For a Rich console."""
    from rich.markdown import Markdown

    return Markdown(to_markdown(entry, language))


def as_dict(entry: Entry) -> dict[str, Any]:
    return entry.model_dump(mode="json")


__all__ = ["as_dict", "to_html", "to_markdown", "to_rich"]
