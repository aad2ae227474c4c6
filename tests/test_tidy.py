"""Style that a machine can check, with the reason in the message."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "forebay"
MODULES = sorted(PACKAGE.rglob("*.py"))

MODULE_LINES_MAX = 330
ENGINE_LINES_MAX = 420  # an SQL adapter is one thing, and split it is harder to read
FUNCTION_LINES_MAX = 45

# What decisions may be made of: data tools only, nothing that knows the time, chance, disk or network.
CORE_MAY_IMPORT = {
    *("abc", "array", "base64", "bisect", "collections", "copy", "dataclasses", "enum", "fractions"),
    *(
        "functools",
        "hashlib",
        "heapq",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "operator",
        "re",
        "statistics",
    ),
    *("string", "struct", "types", "typing", "__future__"),
}

LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK|WIP)\b")
VAGUE_MODULES = {"utils", "util", "helpers", "helper", "misc", "common", "base", "manager", "stuff", "tools"}
# Committed text is about the project: not about how, where or by whom it was written.
TALK = re.compile(r"/work/|\bas an AI\b|\bthis session\b|\bthe brief\b|\bsub-?agent\b", re.IGNORECASE)


def committed_texts():
    """Every text file under version control."""
    try:
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z"],
            cwd=ROOT,
            capture_output=True,
            timeout=30,
            check=True,
        )
        names = listed.stdout.decode().split("\0")[:-1]
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        names = [str(p.relative_to(ROOT)) for p in MODULES]
    paths = [ROOT / name for name in names if Path(name).suffix in {".py", ".md", ".toml", ".sql", ".sh", ""}]
    return [path for path in paths if path.is_file()]


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def functions_of(path):
    return [
        node for node in ast.walk(tree_of(path)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def body_lines(function):
    """Lines of what it does: without the signature (a command's options are a table) and the docstring."""
    first = function.body[1:][:1] if ast.get_docstring(function) else function.body[:1]
    return function.end_lineno - first[0].lineno + 1 if first else 0


def name_of(path):
    return str(path.relative_to(PACKAGE))


def test_a_module_fits_in_one_head():
    found = []
    for path in MODULES:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        most = ENGINE_LINES_MAX if "brokers" in path.parts else MODULE_LINES_MAX
        found += [f"{name_of(path)}: {lines} lines, {most} at most"] if lines > most else []
    assert not found, f"find the second thing in it: {found}"


def test_a_function_fits_on_a_screen():
    found = [
        f"{name_of(path)}:{node.lineno} {node.name}: {length} lines, {FUNCTION_LINES_MAX} at most"
        for path in MODULES
        for node in functions_of(path)
        if (length := body_lines(node)) > FUNCTION_LINES_MAX
    ]
    assert not found, f"parents branch, leaves compute: {found}"


def test_a_module_says_first_what_it_is_for():
    firsts = {
        name_of(path): (ast.get_docstring(tree_of(path)) or "").split("\n\n")[0].rstrip() for path in MODULES
    }
    found = {name: first for name, first in firsts.items() if not first.endswith((".", ":", ")"))}
    assert not found, (
        f"the docstring's first paragraph is a sentence that says what the module is for: {found}"
    )


def test_a_module_has_a_name_of_the_trade():
    found = [name_of(path) for path in MODULES if path.stem in VAGUE_MODULES]
    assert not found, f"name it for what it knows, not for being handy: {found}"


def test_nothing_unfinished_and_no_talk_is_committed():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in committed_texts()
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if LEFTOVERS.search(line) or TALK.search(line)
    ]
    assert not found, "finish it, or file it as an issue: " + "; ".join(found)


def foreign_imports(package, allowed):
    """Imports under `package` whose name the predicate does not allow, each with its module."""
    return [
        f"{name_of(path)} imports {name}"
        for path in sorted((PACKAGE / package).rglob("*.py"))
        for node in ast.walk(tree_of(path))
        for name in imported_by(node)
        if not allowed(name)
    ]


def imported_by(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_core_is_made_of_data_tools_alone():
    ours = ("forebay.core", "forebay.errors")
    found = foreign_imports(
        "core", lambda name: name.split(".")[0] in CORE_MAY_IMPORT or name.startswith(ours)
    )
    assert not found, f"core decides, and gets everything as arguments: {found}"


def test_what_users_write_needs_the_standard_library_alone():
    ours = ("forebay.declare", "forebay.core", "forebay.errors")
    found = foreign_imports(
        "declare", lambda name: name.split(".")[0] in sys.stdlib_module_names or name.startswith(ours)
    )
    assert not found, f"every child pays for it: {found}"


def test_every_package_has_its_sentence_in_the_code_map():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    names = {
        entry.stem for entry in [*PACKAGE.glob("*.py"), *(p.parent for p in PACKAGE.glob("*/__init__.py"))]
    }
    mapped = set(re.findall(r"^\| `(\w+)` \| \S", text, re.MULTILINE))
    missing = sorted(name for name in names - mapped if not name.startswith("__"))
    assert not missing, f"ARCHITECTURE.md's code map has no row for {missing}"
    assert not mapped - names, f"ARCHITECTURE.md's code map has rows for what is not there: {mapped - names}"


def test_the_runtime_needs_twelve_packages_and_no_more():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(project["dependencies"]) <= 12


def _inside(node):
    """Every node of a function but for those of functions within it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _inside(child)


def _is_endless(loop):
    """Whether nothing but an error ends it. A `break` in a loop within it ends that one."""
    if not (isinstance(loop.test, ast.Constant) and loop.test.value is True):
        return False
    within = list(_inside(loop))
    inner = {
        leaf for one in within if isinstance(one, ast.For | ast.AsyncFor | ast.While) for leaf in _inside(one)
    }
    return not any(
        isinstance(one, ast.Return) or (isinstance(one, ast.Break) and one not in inner) for one in within
    )


def test_an_endless_loop_goes_on_after_what_nobody_thought_of():
    waits_alone = {"_listen_once"}  # its caller begins anew
    found = []
    for path in MODULES:
        if path.parts[len(PACKAGE.parts)] in {"cli", "client", "child"}:  # whoever asked sees the error
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.AsyncFunctionDef) or function.name in waits_alone:
                continue
            for loop in _inside(function):
                if isinstance(loop, ast.While) and _is_endless(loop):
                    catches = [one.type for one in _inside(loop) if isinstance(one, ast.ExceptHandler)]
                    if not any(isinstance(one, ast.Name) and one.id == "Exception" for one in catches):
                        found.append(
                            f"{path.relative_to(ROOT)}:{loop.lineno}: let forebay.loops.goes_on turn it"
                        )
    assert found == []
