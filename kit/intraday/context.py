"""The context of a slot: everything preflight gathered, who may see which part, and its id.

`LAYERS` is the one table that says where each field goes: `core` is shown to the model, `reference`
is listed in the packet's index and fetched by name, `control` never reaches a model. A field that
the table does not name cannot be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from kit import files, schemas
from kit.errors import DataError, UsageError

__all__ = ["LAYERS", "Layer", "core_packet", "read_context", "reference", "sealed"]

Layer = Literal["core", "reference", "control"]
_ID_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class _Field:
    layer: Layer
    about: str


LAYERS: Mapping[str, _Field] = {
    "schema_version": _Field(layer="control", about="version of this shape"),
    "status": _Field(layer="core", about="ok"),
    "market": _Field(layer="core", about="cn, hk or us"),
    "market_name": _Field(layer="core", about="the market's Chinese name"),
    "date": _Field(layer="core", about="trade date at the exchange"),
    "time": _Field(layer="core", about="time of this slot's run, HH:MM in the owner's zone"),
    "slot": _Field(layer="core", about="slot id"),
    "title": _Field(layer="core", about="first line of the card"),
    "generated_at": _Field(layer="core", about="when preflight ran, owner's zone"),
    "data_time": _Field(layer="core", about="time of the newest quote, owner's zone"),
    "quote_source": _Field(layer="core", about="who served the quotes"),
    "calendar_known": _Field(layer="core", about="whether the calendar reaches this day"),
    "synthetic": _Field(layer="core", about="whether the quotes are generated"),
    "always_full": _Field(layer="core", about="every open-market slot sends"),
    "semantic_unchanged": _Field(layer="core", about="nothing new since the last delivered slot"),
    "analyzer_block": _Field(layer="core", about="the analyzer's text, exactly"),
    "raw_wechat_block": _Field(layer="core", about="the card's data blocks as text"),
    "full_holdings": _Field(layer="core", about="every holding, its quote and its price lines"),
    "book": _Field(layer="core", about="totals over the priced holdings"),
    "quote_coverage": _Field(layer="core", about="which holdings have a verified quote"),
    "source_errors": _Field(layer="core", about="sources that failed, and why"),
    "anomalies": _Field(layer="core", about="large moves of this slot"),
    "signal_count": _Field(layer="core", about="signals by level"),
    "semantic_state": _Field(layer="core", about="what stands, without prices"),
    "semantic_delta": _Field(layer="core", about="what is new since the last delivered slot"),
    "last_delivered": _Field(layer="core", about="slot and context of the last delivered card"),
    "signals_detail": _Field(layer="reference", about="every signal with its reason lines"),
    "prior_semantic_state": _Field(layer="reference", about="state of the last delivered slot"),
    "card_marks": _Field(layer="control", about="table rows to point at"),
    "card_blocks": _Field(layer="control", about="the card's data blocks"),
    "context_id": _Field(layer="core", about="identity of this generation of the context"),
}
"""Every field of a context: its layer, and what it is in one line."""


def sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context with its id, checked.

    The id is the first twelve hex digits of the SHA-256 over the canonical JSON of the rest.

    Args:
        fields: Every field but `context_id`.

    Raises:
        DataError: `slot.context_field` for a field without a layer or a missing one; `data.schema`
            when the shape is wrong.
    """
    unknown, absent = fields.keys() - LAYERS.keys(), LAYERS.keys() - fields.keys() - {"context_id"}
    if unknown or absent:
        raise DataError(
            "slot.context_field",
            f"context fields without a layer: {sorted(unknown)}; missing: {sorted(absent)}",
            where="context.json",
            remedy="name each field in kit.intraday.context.LAYERS, and fill each",
        )
    digest = files.sha256_bytes(files.canonical_json(fields))[:_ID_DIGITS]
    context = {**fields, "context_id": digest}
    schemas.check("slot-context", context, where="context.json")
    return context


def read_context(value: Any) -> dict[str, Any]:
    """Return a context that was written before, after checking its shape and its id.

    Raises:
        DataError: `data.schema`, or `slot.context_id` when the content is not what the id names.
    """
    schemas.check("slot-context", value, where="context.json")
    context: dict[str, Any] = value
    rest = {name: item for name, item in context.items() if name != "context_id"}
    if files.sha256_bytes(files.canonical_json(rest))[:_ID_DIGITS] != context["context_id"]:
        raise DataError(
            "slot.context_id",
            "the context is not the one its id names",
            where="context.json",
            remedy="run the slot again; a context is never edited",
        )
    return context


def core_packet(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the model is shown: the index, then the core fields, untouched."""
    references = [
        {
            "name": name,
            "about": field.about,
            "bytes": len(files.canonical_json(context[name])),
        }
        for name, field in LAYERS.items()
        if field.layer == "reference"
    ]
    index = {
        "context_id": context["context_id"],
        "slot": context["slot"],
        "generated_at": context["generated_at"],
        "last_delivered": context["last_delivered"],
        "references": references,
    }
    core = {
        name: deepcopy(context[name]) for name, field in LAYERS.items() if field.layer == "core"
    }
    return {"index": index, **core}


def reference(
    context: Mapping[str, Any], entry: str, *, context_id: str, ticker: str | None = None
) -> Any:
    """Return one reference entry, whole or only what concerns one holding.

    Args:
        context: The context as it stands on disk.
        entry: Name in `index.references`.
        context_id: The generation the caller was shown.
        ticker: Keep the list items whose `ticker` this is; an empty list is an answer.

    Raises:
        UsageError: `slot.no_reference` for another name; `slot.stale_context` for another
            generation.
    """
    names = [name for name, field in LAYERS.items() if field.layer == "reference"]
    if entry not in names:
        raise UsageError(
            "slot.no_reference",
            f"there is no reference entry {entry!r}",
            remedy=schemas.suggestion(entry, names) or f"entries: {', '.join(names)}",
        )
    if context_id != context["context_id"]:
        raise UsageError(
            "slot.stale_context",
            f"this is context {context['context_id']}, not {context_id}",
            remedy="ask with the context id of the packet you were shown",
        )
    value = context[entry]
    if ticker is None or not isinstance(value, list):
        return deepcopy(value)
    return [deepcopy(item) for item in value if item.get("ticker") == ticker]
