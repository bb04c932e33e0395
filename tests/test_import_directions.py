"""Which way the folders of slimbayes depend on each other: nothing points back."""

import ast
from pathlib import Path

import slimbayes

SOURCE = Path(__file__).parent.parent / "src" / "slimbayes"
#: From the top down: a folder, or file, may import what is in its own line or below it. Imports inside functions count.
ORDER = [
    {"cli", "__main__"},
    {"demo"},
    {"integrations", "sklearn"},
    {"report"},
    {"evaluation"},
    {"training"},
    {"fitting"},
    {"shifts", "data", "calibration"},
    {"analysis"},
    {"pretrained"},
    {"methods"},
    {"mcmc", "nets"},
    {"_curvature"},
    {"model", "objective", "summary", "_chunks", "_check_rows"},
    {"prediction", "metrics", "_saving"},
    {"conversion"},
    {"ensembles"},
    {"_fast"},
    {"layers"},
    {"_graphs"},
    {"batching", "sampling", "likelihoods", "schedules", "priors"},
    {"families", "divergence", "distributions"},
    {"_bar", "_checks", "_files", "_lazy", "_provenance", "_seeds", "_text_table", "_allocator"},
]
#: ``layers.base.fused`` asks ``_fast``.
KNOWN = {("layers", "_fast")}


def imports(path):
    """Yield the parts of slimbayes that a file imports, but for those that only the type checker sees."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            node.body = []
    package = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "slimbayes"
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in package:
            names = [f"slimbayes.{slimbayes._PLACES.get(node.attr) or node.attr}"]  # sb.ELBO
        if isinstance(node, ast.ImportFrom) and node.module == "slimbayes":
            names = [f"slimbayes.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("slimbayes."))


def test_nothing_points_back():
    level = {part: depth for depth, parts in enumerate(ORDER) for part in parts}
    wrong = set()
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part == "__init__":
            continue  # its names are imported when they are first used
        assert part in level, f"{part} is not in ORDER"
        for other in imports(path):
            if other in level and level[other] < level[part] and (part, other) not in KNOWN:
                wrong.add(f"{path.relative_to(SOURCE)} imports {other}")
    assert not wrong
