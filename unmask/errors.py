"""UserError: the user-facing exception, with a message, the expected values, and a hint how to fix the problem.

Every mistake of a user raises a `UserError`; the command line prints it without a traceback and exits with code 2. Broken
invariants are `assert`s, which show a traceback.
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
    """Quote a value for the shell. A path that starts with a dash would be read as a flag, so it gets the prefix `./`.

    >>> quote(Path("-my run")), quote(Path("runs/a"))
    ("'./-my run'", 'runs/a')
    """
    dashed = isinstance(value, Path) and str(value).startswith("-")
    return shlex.quote(f"./{value}" if dashed else str(value))


def command(start: str, *values: str | Path) -> str:
    """Return a command that can be pasted: `start`, then the quoted values, after `--` if a text starts with a dash.

    >>> command("unmask finetune --resume", Path("-my run")), command("unmask fill", Path("runs/a"), "-x [MASK]")
    ("unmask finetune --resume './-my run'", "unmask fill -- runs/a '-x [MASK]'")
    """
    dashed = any(isinstance(value, str) and value.startswith("-") for value in values)
    return " ".join([start, *(["--"] if dashed else []), *map(quote, values)])


class UnknownTextWarning(UserWarning):
    """Most of a text is unknown to the tokenizer, so the prediction is unreliable (inference/unknown.py)."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, shortened, or its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def nearest(name: str, valid: list[str]) -> str:
    """Return ' (did you mean …?)' if one of `valid` is similar to `name`, else ''.

    >>> nearest("stpes", ["steps", "tokens"])
    ' (did you mean steps?)'
    """
    import difflib

    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""
