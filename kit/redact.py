"""Keep secrets out of notebooks, logs, records and conversations.

Two nets: the values of environment variables whose names sound like secrets, and texts that look
like keys wherever they come from. A kernel never gets the variables that only delivery needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kit.state.process import environment

__all__ = ["MASK", "Redactor", "is_secret_name"]

MASK = "«redacted»"

_SECRET_NAME = re.compile(
    r"""
    PASSWORD|PASSWD|PASSPHRASE|SECRET|WEBHOOK|CREDENTIAL        # anywhere: PGPASSWORD
    | (?<!MAX_)TOKEN(?!IZ) | COOKIE(?!CUTTER)                   # SLACKTOKEN, not TOKENIZERS
    | (?:API|ACCESS|PRIVATE|SIGNING|ENCRYPTION)_?KEY
    | (?:^|_)(?:KEYS?|DSN|PASS|PAT|AUTH(?:ORIZATION)?|BEARER)\d*(?:_(?!SOCK$)|$)
    | (?<=.)(?<!^OLD)PWD$
    """,
    re.VERBOSE,
)
# `surrogateescape` gives the bytes of a variable back as they were; UTF-16 does not know it.
_ENCODINGS = {"utf-8": "surrogateescape", "utf-16-le": "surrogatepass"}
# A shorter value would black out ordinary words.
_MIN_SECRET = 8
_LOOKS_SECRET = re.compile(
    r"""
    (?<![A-Za-z0-9])(?:                  # not \b: a Chinese character counts as a letter there
        sk-[A-Za-z0-9_-]{16,}                                   # provider keys
        | (?:gh[pousr]|xox[abprs])[_-][A-Za-z0-9-]{16,}         # repository and chat tokens
        | AKIA[0-9A-Z]{16}
        | eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}    # JSON web tokens
        | \d{8,10}:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])            # chat bot tokens
    )
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    | (?<=[Bb]earer[ ])[A-Za-z0-9._~+/=-]{12,}
    | (?<=[?&]key=)[A-Za-z0-9-]{12,}                            # chat webhooks
    | (?<=[?&]access_token=)[A-Za-z0-9-]{12,}
    | (?<=://)[^/\s:@]+:[^/\s@]+(?=@)                           # user:password in a URL
    """,
    re.VERBOSE | re.DOTALL,
)


def is_secret_name(name: str) -> bool:
    """Say whether a variable of that name holds a secret."""
    return _SECRET_NAME.search(name.upper()) is not None


class Redactor:
    """Replaces secrets in text.

    Args:
        variables: The environment to take secret values from; the process's own by default.
    """

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        source = environment() if variables is None else variables
        values = {
            value
            for name, value in source.items()
            if is_secret_name(name) and len(value) >= _MIN_SECRET and not value.startswith("/")
        }
        # Inside a JSON file quotes, backslashes and other letters are written differently.
        values |= {json.dumps(v, ensure_ascii=a)[1:-1] for v in values for a in (True, False)}
        # Longest first: one secret may begin with another.
        ordered = sorted(values, key=len, reverse=True)
        self._bytes = [v.encode(code, how) for v in ordered for code, how in _ENCODINGS.items()]
        self._values = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """Return `text` with every secret masked."""
        if self._values is not None:
            text = self._values.sub(MASK, text)
        return _LOOKS_SECRET.sub(MASK, text)

    def found_in(self, data: bytes) -> bool:
        """Say whether a known secret value stands in `data`, whatever kind of file that is."""
        return any(value in data for value in self._bytes)

    def value(self, value: Any) -> Any:
        """Return a JSON-like value with every string in it masked, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value
