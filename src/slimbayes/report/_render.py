"""Pages that are one file: templates, style and scripts, and a policy under which they fetch nothing."""

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any

try:
    import jinja2
    from markupsafe import Markup
except ImportError as error:
    raise ImportError(f'Reports need {error.name}: pip install "slimbayes[report]"') from error


def render(template: str, **context: Any) -> str:
    """Return a page.

    Args:
        template: A file in the folder templates, which extends ``base.html.j2``.
        context: What it shows; text is escaped.

    Example:
        >>> page = render("base.html.j2")
        >>> page.startswith("<!doctype html>")
        True
    """
    scripts = [_static("theme.js"), _static("page.js")]
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup(_static("style.css")),
            theme_script=Markup(scripts[0]),
            page_script=Markup(scripts[1]),
            policy=_policy(scripts),
            **context,
        )
    )


def _policy(scripts: list[str]) -> str:
    """Return a content security policy: nothing may be fetched, and only these scripts run."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src {allowed}; base-uri 'none'; form-action 'none'"
    )


def _static(name: str) -> str:
    return (resources.files("slimbayes.report") / "static" / name).read_text(encoding="utf-8")


@cache
def _environment() -> "jinja2.Environment":
    return jinja2.Environment(
        loader=jinja2.PackageLoader("slimbayes.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
