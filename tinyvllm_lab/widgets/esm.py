"""One browser module out of several files, without a bundler.

A browser loads a widget's code from a blob, where `import … from "./x.js"` finds nothing. So the
modules that a file imports are put in front of it, each in a function of its own:

    const $events = (() => { …; return { KIND, PHASE }; })();
    const { KIND } = $events;

Only one form of import is understood, a list of names from a file of the same folder, on lines of
its own; Node and tsc read the same files as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z_]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|let|function|class) )", re.MULTILINE)
_EXPORTED = re.compile(r"^export (?:async )?(?:const|let|function|class) (\w+)", re.MULTILINE)


@cache
def bundle(name: str) -> str:
    """The module `static/name.js` with everything that it imports, as one text."""
    parts: dict[str, str] = {}
    source = _inline_imports(name, parts)
    return "\n".join([*parts.values(), source])


def page_script(names: Sequence[str]) -> str:
    """Several modules for one page, as one script: `const $$airport = (() => { … })();`."""
    parts: dict[str, str] = {}
    for name in names:
        source = _inline_imports(name, parts).replace("\nexport default ", "\nreturn ")
        parts[f"default of {name}"] = f"const $${name} = (() => {{\n{source}\n}})();"
    return "\n".join(parts.values())


def _inline_imports(name: str, parts: dict[str, str]) -> str:
    """The source with its imports replaced; what they need is added to `parts` first."""
    source = (STATIC / f"{name}.js").read_text(encoding="utf-8")
    for module in _IMPORT.findall(source):
        if module[1] not in parts:
            parts[module[1]] = _wrapped(module[1], parts)
    return _IMPORT.sub(lambda found: _destructuring(found[1], found[2]), source)


def _wrapped(name: str, parts: dict[str, str]) -> str:
    source = _inline_imports(name, parts)
    names = ", ".join(_EXPORTED.findall(source))
    return f"const ${name} = (() => {{\n{_EXPORT.sub('', source)}\nreturn {{ {names} }};\n}})();"


def _destructuring(names: str, module: str) -> str:
    renamed = re.sub(r"(\w+) as (\w+)", r"\1: \2", " ".join(names.split()))
    return f"const {{ {renamed.strip(' ,')} }} = ${module};\n"
