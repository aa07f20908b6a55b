"""Lint rules on prompts: sections, schemas, and a stand-in that really runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from kit.bundle.code import error_line, load_callable
from kit.bundle.layout import inside
from kit.bundle.lint_context import Context, Hit, Rule, line_in
from kit.bundle.manifest import LlmStep
from kit.bundle.markdown import fenced, is_stub
from kit.bundle.prompt import OFFLINE_SECTION, QUALITIES, SECTIONS, Prompt
from kit.errors import BundleError
from kit.llm.shorthand import sample_value
from kit.schemas import suggestion, validate_with

__all__ = ["RULES", "sample_input"]

_SHAPE_CODES = {"bundle.front_matter", "bundle.prompt", "prompt.shorthand"}


def sample_input(prompt: Prompt) -> Any:
    """Return the inputs that a prompt's stand-in is tried on.

    The JSON example under Input Format when there is one that fits the schema; else a value made
    from the schema.
    """
    section = prompt.section("input format")
    for block in fenced(section.text, "json") if section else ():
        try:
            value = json.loads(block)
        except ValueError:
            continue  # an example with an ellipsis is for reading, not for running
        if not validate_with(prompt.input_schema, value):
            return value
    return sample_value(prompt.input_schema)


def _shape(context: Context) -> Iterator[Hit]:
    for path, error in context.problems.items():
        if path.startswith("prompts/") and error.code in _SHAPE_CODES:
            yield Hit(path=path, message=error.message, line=line_in(error), mend=error.remedy)


def _names(context: Context) -> Iterator[Hit]:
    steps = context.manifest.llm_steps if context.manifest else {}
    used = {step.prompt_path: step for step in steps.values()}
    for path, prompt in context.prompts.items():
        stem = PurePosixPath(path).stem
        line = prompt.lines.get("prompt_id")
        if prompt.prompt_id != stem:
            yield Hit(path=path, message=f"prompt_id is {prompt.prompt_id!r}", line=line)
        step = used.get(path)
        if step is None:
            continue
        if step.name != prompt.prompt_id:
            message = f"llm_steps calls it {step.name!r}, the prompt {prompt.prompt_id!r}"
            yield Hit(path=path, message=message, line=line)
        if step.invocation_mode != prompt.invocation_mode:
            yield Hit(
                path=path,
                message=f"invocation_mode is {prompt.invocation_mode} here and "
                f"{step.invocation_mode} in the manifest",
                line=prompt.lines.get("invocation_mode"),
                mend="make the two equal",
            )


def _unused(context: Context) -> Iterator[Hit]:
    if context.manifest is None:
        return
    used = {step.prompt_path for step in context.manifest.llm_steps.values()}
    for path, prompt in context.prompts.items():
        if path not in used:
            hint = suggestion(prompt.prompt_id, context.manifest.llm_steps)
            message = f"no LLM step uses {path}; {hint}".rstrip("; ")
            yield Hit(path=path, message=message)


def _sections(context: Context) -> Iterator[Hit]:
    for path, prompt in context.prompts.items():
        for key in SECTIONS:
            section = prompt.section(key)
            if section is None:
                yield Hit(path=path, message=f"section {key!r} is missing")
            elif is_stub(section.text):
                message = f"section {section.title!r} says nothing yet"
                yield Hit(path=path, message=message, line=section.line)


def _examples(context: Context) -> Iterator[Hit]:
    for path, prompt in context.prompts.items():
        for key, schema in (
            ("input format", prompt.input_schema),
            ("output format", prompt.output_schema),
        ):
            section = prompt.section(key)
            for block in fenced(section.text, "json") if section else ():
                try:
                    value = json.loads(block)
                except ValueError:
                    continue
                for problem in validate_with(schema, value):
                    message = f"the example under {key!r} breaks its schema: {problem}"
                    yield Hit(path=path, message=message, line=section.line if section else None)


def _offline(context: Context) -> Iterator[Hit]:
    for path, prompt in context.prompts.items():
        offline = prompt.offline
        if offline is None:
            continue  # prompt.section says so
        if offline.quality not in QUALITIES:
            stated = f"is {offline.quality!r}" if offline.quality else "is missing"
            yield Hit(
                path=path,
                message=f"the quality of the stand-in {stated}",
                line=offline.line,
                mend=f"write `quality: {'`, `quality: '.join(QUALITIES)}`",
            )
        if not offline.reference:
            yield Hit(
                path=path,
                message="the stand-in names no callable",
                line=offline.line,
                mend="write `callable: code/helpers/x.py::function`",
            )
        if offline.quality != "exact" and not offline.differences:
            yield Hit(
                path=path,
                message="the stand-in lists no differences from the model",
                line=offline.line,
                mend="add `Differences from the model:` and a bullet for each",
            )


def _callable(context: Context) -> Iterator[Hit]:
    for path, prompt in context.prompts.items():
        offline = prompt.offline
        if offline is None or not offline.reference:
            continue
        step = _step_of(context, path)
        yield from _try(context, path, prompt, offline.reference, step)


def _try(
    context: Context, path: str, prompt: Prompt, reference: str, step: LlmStep | None
) -> Iterator[Hit]:
    line = prompt.offline.line if prompt.offline else None
    try:
        function = load_callable(context.root, reference)
        helper = inside(context.root, reference.partition("::")[0])
    except BundleError as error:
        yield Hit(
            path=path, message=f"{error.where}: {error.message}", line=line, mend=error.remedy
        )
        return
    inputs = sample_input(prompt)
    try:
        answer = function(inputs)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a stand-in may raise anything
        name = reference.partition("::")[0]
        yield Hit(
            path=name,
            message=f"{reference} failed on the sample input of {step.name if step else path}: "
            f"{type(error).__name__}: {error}",
            line=error_line(error, helper),
            mend="make it take any input that the input_schema allows",
        )
        return
    for problem in validate_with(prompt.output_schema, answer):
        yield Hit(
            path=path,
            message=f"the answer of {reference} breaks output_schema: {problem}",
            line=line,
            mend="return what output_schema promises",
        )


def _step_of(context: Context, path: str) -> LlmStep | None:
    steps = context.manifest.llm_steps.values() if context.manifest else ()
    return next((step for step in steps if step.prompt_path == path), None)


RULES = (
    Rule(
        id="prompt.front_matter",
        severity="error",
        what="Prompts have valid front matter with compilable schemas.",
        mend="mend the front matter",
        check=_shape,
    ),
    Rule(
        id="prompt.names",
        severity="error",
        what="prompt_id, file stem and step name are one word; the invocation modes agree.",
        mend="use the step's name for the file, the prompt_id and the llm_steps key",
        check=_names,
    ),
    Rule(
        id="prompt.unused",
        severity="warning",
        what="Every prompt belongs to an LLM step.",
        mend="declare it in manifest.llm_steps, or delete it",
        check=_unused,
    ),
    Rule(
        id="prompt.section",
        severity="error",
        what=f"Task, Input Format, Output Format, {OFFLINE_SECTION.title()}.",
        mend="add the section and fill it in",
        check=_sections,
    ),
    Rule(
        id="prompt.example",
        severity="error",
        what="JSON examples in a prompt obey its schemas.",
        mend="mend the example or the schema",
        check=_examples,
    ),
    Rule(
        id="prompt.offline",
        severity="error",
        what="The stand-in declares its quality, its callable and its differences.",
        mend="declare all three",
        check=_offline,
    ),
    Rule(
        id="prompt.callable",
        severity="error",
        what="The stand-in imports, runs on the sample input, and answers by the output schema.",
        mend="mend the helper",
        check=_callable,
    ),
)
