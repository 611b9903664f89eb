"""The one exception that a user sees: what was given, what is expected, and the command that fixes it.

Every mistake a user can make ends in a `UserError`; the command line prints it without a traceback and exits
with 2. A broken invariant is an `assert`, and its traceback is for us.
"""

import shlex
from pathlib import Path


class UserError(ValueError):
    """
    >>> print(UserError("no such file: a.txt", hint="unmask samples"))
    no such file: a.txt
      hint:     unmask samples
    """

    code = 2  # the exit code of the command line

    def __init__(self, message: str, *, expected: str | None = None, hint: str | None = None):
        self.message, self.expected, self.hint = message, expected, hint
        lines = [message]
        if expected:
            lines.append(f"  expected: {expected}")
        if hint:
            lines.append(f"  hint:     {hint}")
        super().__init__("\n".join(lines))


def quote(value: str | Path) -> str:
    """A value for the shell. A path that starts with a dash would be taken for a flag: it gets `./`.

    >>> quote(Path("-my run")), quote(Path("runs/a"))
    ("'./-my run'", 'runs/a')
    """
    dashed = isinstance(value, Path) and str(value).startswith("-")
    return shlex.quote(f"./{value}" if dashed else str(value))


def command(start: str, *values: str | Path) -> str:
    """A command that can be pasted: `start` as it is, then paths and texts, quoted. Before a text with a dash stands `--`.

    >>> command("unmask finetune --resume", Path("-my run")), command("unmask fill", Path("runs/a"), "-x [MASK]")
    ("unmask finetune --resume './-my run'", "unmask fill -- runs/a '-x [MASK]'")
    """
    dashed = any(isinstance(value, str) and value.startswith("-") for value in values)
    return " ".join([start, *(["--"] if dashed else []), *map(quote, values)])


class UnknownTextWarning(UserWarning):
    """A text that the model's tokenizer does not know, so that an answer says little about it (inference/unknown.py)."""


def first_line(error: BaseException) -> str:
    """What an error of a library says, short; its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def nearest(name: str, valid: list[str]) -> str:
    """' (did you mean …?)' when one of `valid` is close to `name`, else ''.

    >>> nearest("stpes", ["steps", "tokens"])
    ' (did you mean steps?)'
    """
    import difflib

    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""
