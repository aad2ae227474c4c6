"""Find and import the application named FILE_OR_MODULE[:app]; say what is wrong in one sentence."""

import importlib
import importlib.util
import os
import sys
import traceback
from types import ModuleType

from forebay.child.texts import OURS, safe_text, type_name
from forebay.declare import App


class LoadError(Exception):
    """The application cannot be used; the text is one sentence, `where` the place."""

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.where = where


def load_app(reference: str) -> App:
    """Return the App. Raises LoadError."""
    place, attribute = split_reference(reference)
    module = load_module(place)
    app = _named(module, place, attribute) if attribute else _only(module, place)
    if not app.tasks:
        raise LoadError(f"{place}: the App declares no task; put @app.task() on a class or a function")
    return app


def load_module(place: str) -> ModuleType:
    """Return the imported file or module. Raises LoadError."""
    is_file = place.endswith(".py") or os.sep in place
    return _import_file(place) if is_file else _import_module(place)


def split_reference(reference: str) -> tuple[str, str]:
    """Return (file or module, attribute); the attribute is empty when none was named."""
    place, colon, attribute = reference.rpartition(":")
    if colon and (attribute.isidentifier() or not attribute):
        return place, attribute
    return reference, ""


def _import_file(path: str) -> ModuleType:
    full = os.path.abspath(path)
    if not os.path.isfile(full):
        raise LoadError(_no_file(path))
    name = os.path.splitext(os.path.basename(full))[0]
    if not name.isidentifier() or name in sys.modules or name in sys.stdlib_module_names:
        name = "forebay_app"
    # What a script finds beside itself, an application finds too.
    sys.path.insert(0, os.path.dirname(full))
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        raise _import_error(path, error) from None
    return module


def _no_file(path: str) -> str:
    if os.path.isdir(path):
        return f"{path}: it is a directory; name the file in it that has the App"
    hint = f" (is it {path}.py?)" if os.path.isfile(f"{path}.py") else ""
    return f"{path}: there is no such file{hint}"


def _import_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise LoadError(_no_file(name))
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            hint = f" (is it the file {name}.py?)" if os.path.isfile(f"{name}.py") else ""
            raise LoadError(f"{name}: there is no such module{hint}") from None
        raise _import_error(name, error) from None
    except BaseException as error:
        raise _import_error(name, error) from None


def _import_error(place: str, error: BaseException) -> LoadError:
    where = place_of(error)
    kind = type_name(error)
    # A SyntaxError's text repeats the place.
    text = error.msg if isinstance(error, SyntaxError) else safe_text(error)
    # Our own refusals name the task, the argument and the rule already.
    if kind == "AppError":
        return LoadError(f"{place}: {text}", where)
    return LoadError(f"{place}: the import failed with {kind}: {text}" if text else f"{place}: {kind}", where)


def place_of(error: BaseException) -> str:
    """Return "file, line n" of the last line of user code that the exception passed, or an empty text."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((OURS, "<frozen")):
            return f"{frame.filename}, line {frame.lineno}"
    return ""


def _named(module: ModuleType, place: str, attribute: str) -> App:
    if not hasattr(module, attribute):
        raise LoadError(f"{place}: it has no {attribute}")
    app = getattr(module, attribute)
    if not isinstance(app, App):
        raise LoadError(f"{place}: {attribute} is a {type(app).__name__}, not a forebay.App")
    return app


def _only(module: ModuleType, place: str) -> App:
    apps = {name: value for name, value in vars(module).items() if isinstance(value, App)}
    if "app" in apps:
        return apps["app"]
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    if apps:
        raise LoadError(
            f"{place}: several Apps ({', '.join(apps)}); name one, like {place}:{next(iter(apps))}"
        )
    if hasattr(module, "app"):
        raise LoadError(f"{place}: app is a {type(module.app).__name__}, not a forebay.App")
    raise LoadError(f"{place}: no forebay.App in it; write app = forebay.App()")
