"""Writes docs/api.md, the list of public modules and names, from the sources: ``make api``."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "slimbayes"
HEAD = """# API

<!-- made by docs/make_api.py: make api -->

**Stable:** the names of `slimbayes` itself (`import slimbayes as sb`), the methods of `BayesianModel`, `ELBO` and
`Prediction`, the commands and their options, the keys of configurations, and the files of `save_pretrained`. From 1.0
on they change only with the first number of the version; before, with the second, and the changelog says so.

**Public:** the modules below. Their names may move between minor versions, and the changelog says where to.

**Private:** every module with an underscore in its path. It may change at any time.
"""


def public_modules() -> dict[str, Path]:
    """Return the modules without a part that starts with an underscore, by name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        if not any(part.startswith("_") for part in parts):
            found[".".join(parts)] = path
    return dict(sorted(found.items()))


def names_in(tree: ast.Module) -> list[str]:
    """Return a module's public names: its ``__all__``, else its classes and functions, else what it offers lazily."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return sorted(ast.literal_eval(node.value))
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    names = [node.name for node in tree.body if isinstance(node, kinds)]
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            names += [
                alias.asname
                for line in node.body
                if isinstance(line, ast.ImportFrom)
                for alias in line.names
                if alias.asname
            ]
    return sorted(name for name in names if not name.startswith("_"))


def page() -> str:
    """Return the page."""
    text = [HEAD]
    for module, path in public_modules().items():
        tree = ast.parse(path.read_text())
        names = ", ".join(f"`{name}`" for name in names_in(tree))
        if names:
            text.append(f"## {module}\n\n{(ast.get_docstring(tree) or '').split(chr(10))[0]}\n\n{names}\n")
    return "\n".join(text)


if __name__ == "__main__":
    (ROOT / "docs" / "api.md").write_text(page())
