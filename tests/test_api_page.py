"""docs/api.md lists the public modules and names as they are."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("make_api", ROOT / "docs" / "make_api.py")
make_api = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_api)


def test_the_page_is_up_to_date():
    assert (ROOT / "docs" / "api.md").read_text() == make_api.page(), "run make api"


def test_public_modules_have_no_underscore_and_are_listed():
    modules = make_api.public_modules()
    assert {"slimbayes", "slimbayes.model", "slimbayes.objective"} <= modules.keys()
    assert not any(part.startswith("_") for name in modules for part in name.split("."))
    assert "`rank1`" in make_api.page()


def test_only_public_modules_say_what_they_export():
    listed = set(make_api.public_modules().values())
    for path in make_api.PACKAGE.rglob("*.py"):
        if path not in listed:
            assert "__all__" not in path.read_text(), f"{path} is private, and needs no __all__"
    undeclared = [name for name, path in make_api.public_modules().items() if not declares(path)]
    assert not undeclared, f"without __all__: {undeclared}; start the file's name with an underscore if it is private"


def declares(path):
    return path.name in ("__init__.py", "__main__.py") or "__all__ = " in path.read_text()
