"""Terminal output: colors on a terminal, plain marks elsewhere, and no escape sequences from texts."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from unmask.cli.show.render import (
    STYLES,
    bar,
    batch_rows,
    fills_table,
    next_table,
    score_line,
    score_table,
)
from unmask.console import write
from unmask.inference.answers import Candidate, FillMaskResult, Mask, MaskedBatch, Part, Row, Score, TokenScore


def render(renderable, color=True, width=80, **settings):
    settings = {"force_terminal": True, "color_system": "truecolor"} | settings if color else settings
    console = Console(file=io.StringIO(), width=width, highlight=False, **settings)
    console.print(renderable)
    return console.file.getvalue()


def without_color(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def candidates(*pairs):
    return [Candidate(token, i, p, f"the {token}") for i, (token, p) in enumerate(pairs)]


CANDIDATES = candidates(("states", 0.75), ("[bold]", 0.2), (" 北", 0.00001))
ONE = FillMaskResult("the [MASK]", [Mask(2, 4, 10, CANDIDATES)], "the states", [(4, 10)])
BOTH = [Mask(1, 0, 6, candidates(("a", 1.0))), Mask(2, 7, 13, candidates(("b", 0.5)))]
TWO = FillMaskResult("[MASK] [MASK]", BOTH, "a b", [(0, 1), (2, 3)])
SCORE = Score(
    "the 北京 bananas",
    -15.5,
    48.2,
    [
        TokenScore("the", 5, -0.5, 0, 3, False),
        TokenScore("北", 6, -2.0, 4, 5, False),
        TokenScore("京", 7, -4.0, 5, 6, False),
        TokenScore("bananas", 8, -9.0, 7, 14, True),
    ],
)
BATCH = MaskedBatch(
    [
        Row(
            8,
            3,
            True,
            [
                Part("special", " [CLS]", " [CLS]"),
                Part("text", " the cat", " the cat"),
                Part("masked", " sat", "[MASK]"),
                Part("random", " on", " [red]"),
                Part("kept", "ly", "ly"),
                Part("text", "北京", "北京"),
                Part("special", " [SEP]", " [SEP]"),
            ],
        )
    ]
)


@pytest.mark.parametrize("color", [True, False])
def test_fills_show_every_candidate_with_a_proportional_bar(color):
    lines = without_color(render(fills_table(ONE), color)).splitlines()
    assert lines[0].rstrip() == "the [MASK]"
    assert re.fullmatch(r"  states +█{18} +75\.0%\s*", lines[1])
    assert re.fullmatch(r"  \[bold\] +████[▊] +20\.0%\s*", lines[2])
    assert re.fullmatch(r"  ␣北 +<0\.1%\s*", lines[3])
    assert len({cell_len(line.rstrip()) for line in lines[1:4]}) == 1  # numbers are aligned, also next to Chinese
    assert len(lines) == 4  # one mask: the best text is not repeated


def test_several_masks_are_numbered_and_shown_filled():
    text = without_color(render(fills_table([TWO, ONE])))
    assert [m in text for m in ("mask 1 of 2", "mask 2 of 2", "all masks filled\na b\n", "\n\nthe [MASK]")] == [
        True
    ] * 4
    assert "\x1b[1;32ma\x1b[0m \x1b[1;32mb" in render(fills_table(TWO))


def test_bars_grow_with_the_fraction_and_stay_in_their_width():
    shares = [i / 200 for i in range(201)]
    bars = [bar(s, 10) for s in shares]
    lengths = [8 * d.count("█") + (" ▏▎▍▌▋▊▉".index(d[-1]) if d and d[-1] != "█" else 0) for d in bars]
    assert lengths == sorted(lengths)
    assert lengths[0] == 0
    assert lengths[-1] == 80
    assert len(set(lengths)) == 81
    assert bar(-1.0) == ""
    assert bar(7.0, 5) == "█████"


def test_terminal_without_unicode_gets_ascii_bars():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    console = Console(file=file, width=80)
    console.print(next_table("a", "b", {"next": 0.5, "other": 0.5}))
    file.flush()
    assert file.buffer.getvalue().count(b"#") == 24


def test_next_sentence_table_explains_the_numbers():
    text = without_color(render(next_table("He came.", "她走了", {"next": 0.9, "other": 0.1})))
    assert re.search(r"A  He came\.\s*\nB  她走了", text)
    assert re.search(r"B follows A .*90\.0%\s*\n.*B does not follow A .*10\.0%", text)


def test_score_marks_surprising_words():
    assert render(score_line(SCORE), color=False) == "the 北京 *bananas*\n"
    colored = render(score_line(SCORE))
    assert without_color(colored).rstrip() == SCORE.text
    assert "\x1b[1;4;31mb" in colored  # red, bold, underlined
    assert "\x1b[32mthe" in colored.replace("\x1b[0m\x1b[32m", "")  # green, likely
    table = without_color(render(score_table(SCORE))).splitlines()
    assert re.fullmatch(r"  bananas +█{21}▋ +-9\.00  surprising\s*", table[4])
    assert [("surprising" in line) for line in table[1:5]] == [False, False, False, True]
    assert table[-1].rstrip() == "log-likelihood -15.50 nats over 4 tokens, pseudo-perplexity 48.2"


def test_batch_without_color_uses_text_marks():
    lines = render(batch_rows(BATCH), color=False).splitlines()
    assert lines[0] == "row 1 · 8 tokens · 3 selected · B follows A"
    assert lines[1] == "[CLS] the cat [MASK:sat] {on→[red]}(ly)北京 [SEP]"
    assert lines[3:] == [
        "[MASK:word] replaced by [MASK]: 1 (33%)",
        "{word→other} replaced by a random token: 1 (33%)",
        "(word) kept unchanged: 1 (33%)",
    ]


def test_batch_in_color_uses_one_color_per_state():
    colored = render(batch_rows(BATCH))
    row = colored.splitlines()[1]
    assert without_color(row).rstrip() == "[CLS] the cat sat on→[red]ly北京 [SEP]"
    colors = [re.search(rf"\x1b\[([0-9;]+)m{re.escape(word)}", row)[1] for word in ("sat", "on→", "ly")]
    assert len(set(colors)) == len(STYLES) == 3
    for color in colors:  # the legend explains each color
        assert f"\x1b[{color}mword" in colored


def test_no_color_on_a_terminal_uses_text_marks():
    assert "[MASK:sat]" in render(batch_rows(BATCH), no_color=True)


def test_rows_without_masks_have_no_legend():
    text = render(batch_rows(MaskedBatch([Row(2, 0, None, [Part("text", "a", "a")])])), color=False)
    assert text.splitlines() == ["row 1 · 2 tokens", "a", ""]


@pytest.mark.parametrize("color", [True, False])
def test_texts_contain_neither_control_characters_nor_markup(color):
    evil = "\x1b[31m\x07\x9b2J[bold red]x[/] {0} {text}\n\r"
    filling = FillMaskResult(f"{evil}[MASK]", [Mask(1, len(evil), len(evil) + 6, candidates((evil, 0.5)))], evil, [])
    score = Score(evil, -1.0, 2.7, [TokenScore(evil, 1, -1.0, 0, len(evil), False)])
    batch = MaskedBatch([Row(1, 1, None, [Part(s, evil, evil) for s in ("masked", "random", "kept", "text")])])
    answer = {"next": 0.5, "other": 0.5}
    for shown in (fills_table(filling), score_table(score), batch_rows(batch), next_table(evil, evil, answer)):
        text = without_color(render(shown, color, width=300))
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
        assert "[bold red]x[/]" in text
        assert "{0} {text}".replace(" ", "␣") in text or "{0} {text}" in text


def test_output_to_a_pipe_is_neither_truncated_nor_wrapped(capsys):
    long = MaskedBatch([Row(400, 1, None, [Part("text", " word" * 400, ""), Part("kept", " end", " end")])])
    write(batch_rows(long))
    write(next_table("a " * 100 + "z", "b", {"next": 1.0, "other": 0.0}))
    write(fills_table(FillMaskResult("x " * 100 + "[MASK]", ONE.masks, "", [])))
    write(score_table(SCORE))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == " ".join(["word"] * 400) + " (end)"
    assert "A  " + "a " * 100 + "z" in lines
    assert "x " * 100 + "[MASK]" in lines
    assert not any("\x1b" in line for line in lines)
