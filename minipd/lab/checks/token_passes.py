"""Checks of exercise 01.2: how many tokens go through the model, without and with notes."""

from __future__ import annotations

from minipd.lab.hints import Answer, Check, Exercise, Hints

PROMPT, ANSWER = 5, 3  # lengths 5, 6, 7: 18 token-passes without notes, 7 with
WITHOUT, WITH = 18, 7


def _pair(answer: Answer, prompt_tokens: int = PROMPT, answer_tokens: int = ANSWER) -> list[float]:
    return [float(value) for value in answer(prompt_tokens, answer_tokens)]


def _returns_two_numbers(answer: Answer) -> bool:
    made = answer(PROMPT, ANSWER)
    return isinstance(made, (tuple, list)) and len(made) == 2  # pyright: ignore[reportUnknownArgumentType]


def _first_is_larger(answer: Answer) -> bool:
    without, with_notes = _pair(answer)
    return without >= with_notes


TOKEN_PASSES = Exercise(
    "01.2",
    "Count the work",
    "token_passes",
    (
        Check(
            "two_numbers",
            "token_passes must return two counts: without notes, with notes.",
            _returns_two_numbers,
            Hints(
                "Look at the last line of your function.",
                "A function gives back two values by returning a tuple.",
                "End with: return without, with_notes",
            ),
        ),
        Check(
            "without_first",
            "Without notes there cannot be less work than with them.",
            _first_is_larger,
            Hints(
                "Both counts are there. In which order?",
                "Notes save work, so the first of the two numbers is never the smaller one.",
                "End with: return without, with_notes",
            ),
        ),
        Check(
            "tokens_not_passes",
            "For an answer of 5 tokens you counted 5: that is how often the model is called.",
            lambda answer: _pair(answer, 100, 5)[0] != 5,
            Hints(
                "What is the unit of your count?",
                "One call of the model lets many tokens through; each of them counts.",
                "Add up the length of the text at each call.",
            ),
        ),
        Check(
            "prompt_counts",
            "A prompt of 100 tokens has to go through the model, with notes or without.",
            lambda answer: min(_pair(answer, 100, 5)) >= 100,
            Hints(
                "What is read before the first token of the answer?",
                "The first pass reads the whole prompt, and without notes each later one does too.",
                "The first length is prompt_tokens, not 0.",
            ),
        ),
        Check(
            "last_token_stays_out",
            "With an answer of one token, just the 7 tokens of the prompt go through.",
            lambda answer: _pair(answer, 7, 1) == [7, 7],
            Hints(
                "After which pass is the last token known?",
                "A token is chosen after the pass over everything before it; from the last one "
                "nothing is computed any more.",
                "The longest text that passes has prompt_tokens + answer_tokens - 1 tokens.",
            ),
        ),
        Check(
            "grows_token_by_token",
            "Without notes, each pass is one token longer than the one before it.",
            lambda answer: _pair(answer)[0] not in (PROMPT * ANSWER, WITH * ANSWER),
            Hints(
                "Are all passes of your count equally long?",
                "The text grows by one token after each pass: its length is a staircase.",
                "Add up prompt_tokens, prompt_tokens + 1, and so on, one for each answer token.",
            ),
        ),
        Check(
            "counts",
            f"A prompt of {PROMPT} and an answer of {ANSWER} tokens: {WITHOUT} without notes, "
            f"{WITH} with.",
            lambda answer: _pair(answer) == [WITHOUT, WITH] and _pair(answer, 2, 4) == [14, 5],
            Hints(
                "Write the texts of the example down, one line for each pass.",
                "Without notes the lines have 5, 6 and 7 tokens; with notes each token is let "
                "through once, on the first line that it stands on.",
                "Without: sum(range(first_length, last_length + 1)). With: the last length.",
            ),
        ),
    ),
)
