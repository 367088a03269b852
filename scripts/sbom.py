"""Writes what of other projects is in a wheel, as CycloneDX JSON: `sbom.py FILE INTERPRETER...`.

The list is licenses/third_party.toml, which tests/python/test_licenses.py holds against what is linked and included.
Versions are asked for where they are decided: in the headers that are compiled in (`version` of a row), and for torch
in the environment of each interpreter that a part of the wheel was built with. The file has no time and no random
number: it is the same each time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parent.parent
ASK = """
import importlib.util as u, json, os, sysconfig
torch = os.path.dirname(u.find_spec("torch").origin)
nanobind = os.path.dirname(u.find_spec("nanobind").origin)
version = {}
exec(open(torch + "/version.py").read(), version)
print(json.dumps([str(version["__version__"]).partition("+")[0], [torch + "/include", nanobind + "/include",
    nanobind + "/ext/robin_map/include", sysconfig.get_path("include")]]))
"""


def asked(interpreter: str) -> tuple[str, list[str]]:
    """The release of torch, and the folders of headers that belong to an interpreter."""
    done = subprocess.run([interpreter, "-c", ASK], check=True, capture_output=True, text=True)
    release, folders = json.loads(done.stdout)
    return release, folders


def version_of(header: str, macros: list[str], folders: list[str]) -> str:
    """The values of macros of a header, joined by points."""
    done = subprocess.run(
        ["c++", "-std=c++20", "-E", "-dM", "-x", "c++", "-", *(f"-I{folder}" for folder in folders)],
        input=f"#include <{header}>\n",
        check=True,
        capture_output=True,
        text=True,
    )
    values = []
    for macro in macros:
        match = re.search(rf'^#define {macro} "?([^"\n]+)"?$', done.stdout, re.MULTILINE)
        if match is None:
            sys.exit(f"sbom: {header} has no {macro}")
        values.append(match.group(1))
    return ".".join(values)


def versions_of(row: dict[str, Any], builds: list[tuple[str, list[str]]], llvm: str) -> list[str]:
    """One, or one for each torch of the wheel."""
    how = row["version"]
    if isinstance(how, str):
        return [how]
    if not how:
        return sorted({release for release, _ in builds})
    return sorted({version_of(how[0], how[1:], [*folders, llvm]) for _, folders in builds})


def component(name: str, version: str, license: str, kind: ComponentType, purl: PackageURL) -> Component:
    return Component(
        name=name,
        version=version,
        type=kind,
        licenses=[LicenseExpression(license)],
        purl=purl,
        bom_ref=purl.to_string(),
    )


def main() -> None:
    target, interpreters = Path(sys.argv[1]), sys.argv[2:]
    builds = [asked(interpreter) for interpreter in interpreters]
    llvm = subprocess.run(
        ["llvm-config-19", "--includedir"], check=True, capture_output=True, text=True
    ).stdout.strip()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    ours = component(
        name, version, project["license"], ComponentType.LIBRARY, PackageURL("pypi", None, name, version)
    )
    bom = Bom()
    bom.metadata.component = ours
    bom.metadata.timestamp = None
    parts = []
    for row in tomllib.loads((ROOT / "licenses" / "third_party.toml").read_text())["library"]:
        kind, _, package = row["package"].partition("/")
        for found in versions_of(row, builds, llvm):
            url = PackageURL(kind, None, package, found)
            parts.append(component(row["name"], found, row["license"], ComponentType.LIBRARY, url))
    bom.components.update(parts)
    bom.register_dependency(ours, parts)
    text = json.loads(JsonV1Dot6(bom).output_as_string())
    del text["serialNumber"]
    text["metadata"].pop("timestamp", None)
    written = json.dumps(text, indent=2, sort_keys=True) + "\n"
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(written)
    if fault is not None:
        sys.exit(f"sbom: not CycloneDX: {fault}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(written)


if __name__ == "__main__":
    main()
