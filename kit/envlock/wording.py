"""Every Chinese text of the environment lock: what to install, to set, or to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kit.text import clip, one_line

__all__ = ["evidence_label", "hint"]

Entry = Mapping[str, Any]

_MOST_FIELDS, _MOST_NAME = 10, 80

_EVIDENCE = {"schema": "按服务声明的结构", "canary": "按一次试调用的结果"}

# By reason of an entry; `*` for any other one.
_TEXTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "channel_mismatch": {
            "*": "{mcp} 的渠道应为 {required}，config/mcp.json 登记的是 {actual}："
            "请换用 {required} 渠道的服务；确认要混用时加 --force-channel-mismatch"
        },
        "missing_mcps": {
            "missing_server": "请安装 {mcp} {min_version} 以上版本（{source}），"
            "并登记到 config/mcp.json",
            "not_startable": "{mcp} 的启动命令不可执行：请安装 {source}，"
            "或改正 config/mcp.json 中的命令",
            "timeout": "{mcp} 已启动但没有回应：请检查该服务（应为 {source}）",
            "*": "{mcp} 无法使用：请检查该服务，或重新安装 {source}",
        },
        "version_too_old": {
            "too_old": "{mcp} 版本 {actual} 过低：请升级到 {min_version} 以上（{source}）",
            "not_a_version": "{mcp} 报告的版本不是版本号：请换用 {source}",
            "bad_min_version": "manifest 中 {mcp} 的 min_version（{min_version}）"
            "不是版本号：请改正",
            "*": "{mcp} 没有报告自己的版本：请换用报告版本的发行版（{source}）",
        },
        "schema_diffs": {
            "no_tool": "{mcp} 没有可用的工具 {tool}：请换用 {source}，或重新冻结策略",
            "unverifiable": "{mcp}.{tool} 无法核对：服务没有声明字段，试调用也没有给出，"
            "请在 manifest 中补写 canary，或换用 {source}",
            "changed": "{mcp}.{tool} 与冻结时不一致（{fields}）：请换用 {source}，"
            "或按新结构修改并重新冻结策略",
            "repeated_tool": "{mcp} 重复声明了工具 {tool}：请换用 {source}",
            "bad_schema": "{mcp}.{tool} 声明的结构不可用：请换用 {source}",
            "*": "{mcp}.{tool} 的试调用没有成功（{reason}）：请检查该服务及其所需的环境变量，"
            "或换用 {source}",
        },
        "missing_env": {"*": "请设置环境变量 {name}（{purpose}）"},
        "unreachable_db": {
            "not_configured": "请在 config/databases.json 登记数据库 {alias}（{kind}，{purpose}）",
            "no_url": "请设置环境变量 {url_env}：数据库 {alias} 的地址（{purpose}）",
            "no_driver": "请安装数据库 {alias} 的驱动：pip install 'kit[postgres]'",
            "*": "数据库 {alias}（{kind}）连不上：请检查 {url_env} 与数据库服务",
        },
    }
)

_FIELD_KEYS = (
    "missing_input_fields",
    "new_required_inputs",
    "missing_output_fields",
    "value_mismatches",
    "type_changes",
)


def hint(details: Mapping[str, Sequence[Entry]]) -> str:
    """Return what to do about every failure, in the order of the stages; empty without one."""
    said = [_text(key, entry) for key in _TEXTS for entry in details.get(key, ())]
    return "；".join(dict.fromkeys(said))


def evidence_label(evidence: str) -> str:
    """Return how a tool was checked, in the words of a reader."""
    return _EVIDENCE.get(evidence, evidence)


def _text(key: str, entry: Entry) -> str:
    texts = _TEXTS[key]
    text = texts.get(str(entry.get("reason")), texts["*"])
    return text.format_map({**entry, "fields": _fields(entry)})


def _fields(entry: Entry) -> str:
    found = [
        item if isinstance(item, str) else str(item["field"])
        for key in _FIELD_KEYS
        for item in entry.get(key, ())
    ]
    names = [clip(one_line(name), _MOST_NAME) for name in dict.fromkeys(found)]
    more = f" 等 {len(names)} 项" if len(names) > _MOST_FIELDS else ""
    return "、".join(names[:_MOST_FIELDS]) + more
