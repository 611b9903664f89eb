"""What is printed: colours on a terminal, plain marks elsewhere, and never what a text smuggles in."""

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


def render(renderable, colour=True, width=80, **settings):
    settings = {"force_terminal": True, "color_system": "truecolor"} | settings if colour else settings
    console = Console(file=io.StringIO(), width=width, highlight=False, **settings)
    console.print(renderable)
    return console.file.getvalue()


def uncoloured(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def candidates(*pairs):
    return [Candidate(token, i, p, f"the {token}") for i, (token, p) in enumerate(pairs)]


ASKED = candidates(("states", 0.75), ("[bold]", 0.2), (" 北", 0.00001))
ONE = FillMaskResult("the [MASK]", [Mask(2, 4, 10, ASKED)], "the states", [(4, 10)])
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


@pytest.mark.parametrize("colour", [True, False])
def test_fills_show_every_candidate_with_a_bar_as_long_as_its_share(colour):
    lines = uncoloured(render(fills_table(ONE), colour)).splitlines()
    assert lines[0].rstrip() == "the [MASK]"
    assert re.fullmatch(r"  states +█{18} +75\.0%\s*", lines[1])
    assert re.fullmatch(r"  \[bold\] +████[▊] +20\.0%\s*", lines[2])
    assert re.fullmatch(r"  ␣北 +<0\.1%\s*", lines[3])
    assert len({cell_len(line.rstrip()) for line in lines[1:4]}) == 1  # figures stand in one column, Chinese too
    assert len(lines) == 4  # one mask: no need to repeat the best one


def test_several_masks_are_numbered_and_filled_together():
    text = uncoloured(render(fills_table([TWO, ONE])))
    assert [m in text for m in ("mask 1 of 2", "mask 2 of 2", "all masks filled\na b\n", "\n\nthe [MASK]")] == [
        True
    ] * 4
    assert "\x1b[1;32ma\x1b[0m \x1b[1;32mb" in render(fills_table(TWO))


def test_bars_grow_with_the_share_and_stay_in_their_width():
    shares = [i / 200 for i in range(201)]
    drawn = [bar(s, 10) for s in shares]
    lengths = [8 * d.count("█") + (" ▏▎▍▌▋▊▉".index(d[-1]) if d and d[-1] != "█" else 0) for d in drawn]
    assert lengths == sorted(lengths)
    assert lengths[0] == 0
    assert lengths[-1] == 80
    assert len(set(lengths)) == 81
    assert bar(-1.0) == ""
    assert bar(7.0, 5) == "█████"


def test_a_terminal_without_unicode_gets_ascii_bars():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    console = Console(file=file, width=80)
    console.print(next_table("a", "b", {"next": 0.5, "other": 0.5}))
    file.flush()
    assert file.buffer.getvalue().count(b"#") == 24


def test_next_says_what_the_figures_mean():
    text = uncoloured(render(next_table("He came.", "她走了", {"next": 0.9, "other": 0.1})))
    assert re.search(r"A  He came\.\s*\nB  她走了", text)
    assert re.search(r"B follows A .*90\.0%\s*\n.*B does not follow A .*10\.0%", text)


def test_a_score_marks_the_odd_word():
    assert render(score_line(SCORE), colour=False) == "the 北京 *bananas*\n"
    coloured = render(score_line(SCORE))
    assert uncoloured(coloured).rstrip() == SCORE.text
    assert "\x1b[1;4;31mb" in coloured  # red, bold, underlined
    assert "\x1b[32mthe" in coloured.replace("\x1b[0m\x1b[32m", "")  # green, likely
    table = uncoloured(render(score_table(SCORE))).splitlines()
    assert re.fullmatch(r"  bananas +█{21}▋ +-9\.00  surprising\s*", table[4])
    assert [("surprising" in line) for line in table[1:5]] == [False, False, False, True]
    assert table[-1].rstrip() == "log-likelihood -15.50 nats over 4 tokens, pseudo-perplexity 48.2"


def test_a_batch_without_colours_writes_out_what_happened():
    lines = render(batch_rows(BATCH), colour=False).splitlines()
    assert lines[0] == "row 1 · 8 tokens · 3 selected · B follows A"
    assert lines[1] == "[CLS] the cat [MASK:sat] {on→[red]}(ly)北京 [SEP]"
    assert lines[3:] == [
        "[MASK:word] replaced by [MASK]: 1 (33%)",
        "{word→other} replaced by a random token: 1 (33%)",
        "(word) kept unchanged: 1 (33%)",
    ]


def test_a_batch_in_colours_marks_each_state_in_its_own():
    coloured = render(batch_rows(BATCH))
    row = coloured.splitlines()[1]
    assert uncoloured(row).rstrip() == "[CLS] the cat sat on→[red]ly北京 [SEP]"
    colours = [re.search(rf"\x1b\[([0-9;]+)m{re.escape(word)}", row)[1] for word in ("sat", "on→", "ly")]
    assert len(set(colours)) == len(STYLES) == 3
    for colour in colours:  # each is explained in the legend
        assert f"\x1b[{colour}mword" in coloured


def test_no_color_on_a_terminal_is_the_plain_form():
    assert "[MASK:sat]" in render(batch_rows(BATCH), no_color=True)


def test_rows_without_masks_have_no_legend():
    text = render(batch_rows(MaskedBatch([Row(2, 0, None, [Part("text", "a", "a")])])), colour=False)
    assert text.splitlines() == ["row 1 · 2 tokens", "a", ""]


@pytest.mark.parametrize("colour", [True, False])
def test_texts_can_neither_steer_the_terminal_nor_be_markup(colour):
    evil = "\x1b[31m\x07\x9b2J[bold red]x[/] {0} {text}\n\r"
    filling = FillMaskResult(f"{evil}[MASK]", [Mask(1, len(evil), len(evil) + 6, candidates((evil, 0.5)))], evil, [])
    score = Score(evil, -1.0, 2.7, [TokenScore(evil, 1, -1.0, 0, len(evil), False)])
    batch = MaskedBatch([Row(1, 1, None, [Part(s, evil, evil) for s in ("masked", "random", "kept", "text")])])
    answer = {"next": 0.5, "other": 0.5}
    for shown in (fills_table(filling), score_table(score), batch_rows(batch), next_table(evil, evil, answer)):
        text = uncoloured(render(shown, colour, width=300))
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
        assert "[bold red]x[/]" in text
        assert "{0} {text}".replace(" ", "␣") in text or "{0} {text}" in text


def test_printing_into_a_pipe_cuts_and_wraps_nothing(capsys):
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
