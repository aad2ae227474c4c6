"""What kind of file it is, which rules look at it, and which findings its lines wave through."""

import re
from collections.abc import Callable, Iterator
from typing import Final

from forebay.core.linting.clouds import terraform_rules
from forebay.core.linting.code import code_rules
from forebay.core.linting.containers import compose_rules, kubernetes_rules
from forebay.core.linting.findings import RULES, Known, Lint
from forebay.core.linting.pipelines import pipeline_rules
from forebay.core.linting.processes import command_rules, unit_rules

_WAVED: Final = re.compile(r"forebay:\s*ignore\s+([\w-]+(?:\s*,\s*[\w-]+)*)")
_COMMANDS: Final = re.compile(
    r"(?:^|/)(?:Dockerfile[^/]*|Containerfile|Procfile|[^/]+\.(?:sh|bash|dockerfile))$"
)
_YAML: Final = re.compile(r"\.ya?ml$")
_LOOKS: Final[dict[str, Callable[[str, Known], Iterator[Lint]]]] = {
    "pipeline": lambda text, _: pipeline_rules(text),
    "terraform": terraform_rules,
    "kubernetes": kubernetes_rules,
    "compose": compose_rules,
    "unit": unit_rules,
    "commands": lambda text, _: command_rules(text),
    "code": lambda text, _: code_rules(text),
}


def kind_of(name: str, text: str) -> str | None:
    """Return which rules look at a file, by its name and, for YAML, what it says; None: none do."""
    if name.endswith(".tf"):
        return "terraform"
    if name.endswith(".service"):
        return "unit"
    if name.endswith(".py"):
        return "code"
    if _COMMANDS.search(name):
        return "commands"
    if not _YAML.search(name):
        return None
    if ".github/workflows/" in name or re.search(r"gitlab-ci\.ya?ml$", name):
        return "pipeline"
    if re.search(r"^apiVersion:", text, re.MULTILINE) and re.search(r"^kind:", text, re.MULTILINE):
        return "kubernetes"
    if re.search(r"^services:", text, re.MULTILINE):
        return "compose"
    if re.search(r"^(stages|jobs):", text, re.MULTILINE) or re.search(r"^ +script:", text, re.MULTILINE):
        return "pipeline"
    return None


def lint(name: str, text: str, known: Known) -> list[Lint]:
    """Return what is wrong with a file, in the order of its lines. A line that says `forebay: ignore RULE`
    waves that finding on it, or on the next line, through."""
    kind = kind_of(name, text)
    if kind is None:
        return []
    found = list(_LOOKS[kind](text, known))
    if kind == "compose":
        found += [one for one in command_rules(text) if one not in found]
    lines = text.splitlines()
    kept = [one for one in dict.fromkeys(found) if one.rule not in _waved(lines, one.line)]
    return sorted(kept, key=lambda one: (one.line, list(RULES).index(one.rule)))


def _waved(lines: list[str], line: int) -> set[str]:
    above = lines[line - 2] if line >= 2 and lines[line - 2].lstrip().startswith(("#", "//", ";")) else ""
    near = f"{above} {lines[line - 1]}"
    return {rule.strip() for match in _WAVED.findall(near) for rule in match.split(",")}
