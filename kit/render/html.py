"""A page that is one file: no script, nothing loaded from anywhere, light, dark and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

__all__ = ["Section", "page"]

# The policy makes the browser refuse whatever a section might try to load.
_PAGE: Final = """\
<!DOCTYPE html>
<html lang="zh-CN">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ title }}</title>
<style>
{{ style|trusted }}</style>
</head>
<body>
<main>
<header>
<h1>{{ title }}</h1>
{% if subtitle %}<p class="subtitle">{{ subtitle }}</p>
{% endif %}{% if sections|length > 3 %}<nav aria-label="目录">
{% for section in sections %}<a href="#s{{ loop.index }}">{{ section.heading }}</a>
{% endfor %}</nav>
{% endif %}</header>
{% for section in sections %}<section id="s{{ loop.index }}">
<h2>{{ section.heading }}</h2>
<div class="body">{{ section.html|trusted }}</div>
{% if section.note %}<p class="note">{{ section.note }}</p>
{% endif %}</section>
{% endfor %}</main>
</body>
</html>
"""

_STYLE: Final = """\
:root{--page:#fff;--text:#1d2433;--soft:#5b6472;--rule:#d9dde3;--band:#f5f6f8;--link:#1f5fa8}
@media (prefers-color-scheme:dark){:root{--page:#14171c;--text:#e4e7ec;--soft:#a0a8b4;
--rule:#343a44;--band:#1d2128;--link:#8ab8f0}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.6 system-ui,"PingFang SC",
"Microsoft YaHei","Noto Sans CJK SC",sans-serif;-webkit-text-size-adjust:100%}
main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 3rem}
h1{font-size:1.6rem;line-height:1.3;margin:0}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem;padding-bottom:.3rem;border-bottom:1px solid var(--rule)}
h3{font-size:1rem;margin:1.2rem 0 .4rem}
a{color:var(--link)}
nav{display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin-top:.8rem;font-size:.9rem}
.subtitle,.note{color:var(--soft);font-size:.9rem;margin:.4rem 0}
.body{overflow-x:auto}
.body svg{width:100%;height:auto;margin:.4rem 0}
table{border-collapse:collapse;margin:.4rem 0;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--rule);vertical-align:top}
th{color:var(--soft);font-weight:600;white-space:nowrap}
code,pre{font-family:ui-monospace,Menlo,Consolas,"Noto Sans Mono CJK SC",monospace;font-size:.85em}
code{background:var(--band);padding:.1em .3em;border-radius:3px}
pre{background:var(--band);padding:.8rem;border-radius:4px;overflow-x:auto}
pre code{padding:0}
@media (max-width:40rem){main{padding:1rem .8rem 2rem}h1{font-size:1.3rem}
table{font-size:.78rem}th,td{padding-right:.45rem}th{white-space:normal;word-break:keep-all}
.body svg.kit-chart text{font-size:16px}.body svg.kit-chart text.head{font-size:19px}}
@media print{:root{--page:#fff;--text:#000;--soft:#444;--rule:#bbb;--band:#f2f2f2;--link:#000}
body{font-size:11pt}main{max-width:none;padding:0}nav{display:none}.body{overflow:visible}
h2{break-after:avoid}tr,svg,pre{break-inside:avoid}thead{display:table-header-group}}
"""


@dataclass(frozen=True)
class Section:
    """One part of a page.

    Attributes:
        heading: Plain text.
        html: Markup that is put in as it is: a chart, a table, or text escaped by its author.
        note: One plain sentence under it: what is to be seen, or where it comes from.
    """

    heading: str
    html: str
    note: str = ""


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=False)
    # Only a section's own markup passes unescaped, and only here.
    environment.filters["trusted"] = Markup
    return environment.from_string(_PAGE)


def page(title: str, sections: Sequence[Section], subtitle: str = "") -> str:
    """Return a whole HTML document that needs no other file and no script.

    Args:
        title: Plain text, also the title of the window.
        sections: Parts in reading order; more than three get a list of links above them.
        subtitle: Plain text under the title.
    """
    return _template().render(
        title=title,
        sections=list(sections),
        subtitle=subtitle,
        style=_STYLE,
    )
