"""Checks of exercise 06.3: the pieces of one step under a token budget."""

from __future__ import annotations

from minipd.lab.checks.returned import returns_something
from minipd.lab.hints import Answer, Check, Exercise, Hints

Prompts = list[tuple[str, int, int]]
Pieces = list[tuple[str, int, int, bool]]

LONG: Prompts = [("doc", 0, 100)]


def _pieces(answer: Answer, writing: int, prompts: Prompts, budget: int) -> Pieces:
    made = answer(writing, list(prompts), budget)
    return [(str(n), int(start), int(stop), bool(wants)) for n, start, stop, wants in made]


def _read(pieces: Pieces) -> int:
    return sum(stop - start for _, start, stop, _ in pieces)


def _all_pieces(answer: Answer, total: int, budget: int) -> Pieces:
    """Step after step, until a prompt has been read."""
    read, found = 0, Pieces()
    while read < total and len(found) <= total:
        step = _pieces(answer, 2, [("doc", read, total)], budget)
        found += step
        if not step or step[0][2] <= read:
            break
        read = step[0][2]
    return found


def _covers_everything(answer: Answer) -> bool:
    """No token twice, none left out, at every chunk boundary."""
    for total in (7, 8, 9, 16):
        pieces = _all_pieces(answer, total, 6)
        seen = [at for _, start, stop, _ in pieces for at in range(start, stop)]
        if seen != list(range(total)):
            return False
    return True


def _token_after_the_last_piece(answer: Answer) -> bool:
    wants = [one[3] for one in _all_pieces(answer, 10, 6)]
    return wants == [False, False, True]


def _second_prompt_gets_the_rest(answer: Answer) -> bool:
    prompts = [("first", 0, 5), ("second", 0, 50)]
    return "second" in [one[0] for one in _pieces(answer, 2, prompts, 20)]


def _budget_is_shared(answer: Answer) -> bool:
    prompts = [("first", 0, 12), ("second", 0, 50), ("third", 3, 40)]
    return _read(_pieces(answer, 2, prompts, 20)) <= 18


def _first_come(answer: Answer) -> bool:
    """Neither the shorter prompt nor the one that was begun may overtake."""
    short = _pieces(answer, 0, [("long", 10, 100), ("short", 0, 3)], 20)
    begun = _pieces(answer, 0, [("new", 0, 100), ("begun", 40, 100)], 20)
    return short[0][:3] == ("long", 10, 30) and begun[0][:3] == ("new", 0, 20)


def _never_stuck(answer: Answer) -> bool:
    return all(_read(_pieces(answer, n, LONG, 8)) == 1 for n in (8, 9, 20))


def _one_token_may_be_the_last(answer: Answer) -> bool:
    return [one[3] for one in _pieces(answer, 8, [("doc", 99, 100)], 8)] == [True]


def _no_empty_piece(answer: Answer) -> bool:
    prompts = [("first", 0, 18), ("second", 0, 50)]
    cases = [_pieces(answer, 2, prompts, 20), _pieces(answer, 8, [*LONG, ("x", 0, 5)], 8)]
    return all(stop > start for made in cases for _, start, stop, _ in made)


def _inputs_stay(answer: Answer) -> bool:
    prompts = [("first", 0, 5), ("second", 2, 50)]
    mine = list(prompts)
    answer(2, mine, 20)
    return mine == prompts


def _value(answer: Answer) -> bool:
    prompts = [("a", 4, 10), ("b", 0, 30)]
    expected = [("a", 4, 10, True), ("b", 0, 11, False)]
    return (
        _pieces(answer, 3, prompts, 20) == expected
        and _pieces(answer, 3, [], 20) == []
        and _pieces(answer, 8, [], 8) == []
        and _pieces(answer, 0, [("a", 0, 20)], 20) == [("a", 0, 20, True)]
    )


NEXT_STEP = Exercise(
    "06.3",
    "One step under a token budget",
    "next_step",
    (
        returns_something(
            "next_step", "the list of pieces", lambda answer: answer(2, list(LONG), 20)
        ),
        Check(
            "four_values",
            "Each piece must be (name, start, stop, wants_token).",
            lambda answer: all(len(one) == 4 for one in answer(2, list(LONG), 20)),
            Hints(
                "Look at one element of your list.",
                "Four values in this order: whose, from which token, up to which, and is a token "
                "wanted.",
                "pieces.append((name, read, read + count, read + count == total))",
            ),
        ),
        Check(
            "answers_count",
            "Three answers and a budget of 20 leave 17 tokens for reading; more was read.",
            lambda answer: _read(_pieces(answer, 3, LONG, 20)) <= 17,
            Hints(
                "Who else is in this step?",
                "Every running answer takes one token of the budget, and they come first.",
                "left = budget - num_writing",
            ),
        ),
        Check(
            "stop_is_exclusive",
            "Token by token, step after step: one was read twice, left out, or does not exist.",
            _covers_everything,
            Hints(
                "Write down start and stop of two pieces in a row.",
                "A piece holds the tokens from start up to, not including, stop, as slices do; the "
                "next one begins where it ends, and the last one ends with the prompt.",
                "count = min(left, total - read); (name, read, read + count, ...)",
            ),
        ),
        Check(
            "token_after_the_last_piece",
            "A prompt of 10 tokens in pieces of 4, 4 and 2: only after the last is a token wanted.",
            _token_after_the_last_piece,
            Hints(
                "What would a token say that is sampled in the middle of the prompt?",
                "Only after the piece that ends the prompt does the next token answer all of it.",
                "wants_token = stop == total",
            ),
        ),
        Check(
            "never_stuck",
            "When answers alone fill the budget, exactly one token is to be read all the same.",
            _never_stuck,
            Hints(
                "Eight answers and a budget of 8: when is the document read?",
                "Without a rule, reading would starve for as long as enough answers run.",
                "left = max(1, budget - num_writing)",
            ),
        ),
        Check(
            "one_token_may_be_the_last",
            "Answers fill the budget, and the one token that is read is the prompt's last one: now "
            "the next token is wanted.",
            _one_token_may_be_the_last,
            Hints(
                "What does wants_token depend on?",
                "A piece that ends the prompt wants a token, however small the piece is.",
                "wants_token = stop == total, in this case as in all others",
            ),
        ),
        Check(
            "second_prompt_gets_the_rest",
            "The first prompt ended and room was left, but the second one got none.",
            _second_prompt_gets_the_rest,
            Hints(
                "Is your step full?",
                "A prompt that ends early leaves room for the next one in the same step.",
                "Go over all prompts, and take from what is left.",
            ),
        ),
        Check(
            "budget_is_shared",
            "Three prompts in one step read more than the budget allows together.",
            _budget_is_shared,
            Hints(
                "What is left after the first piece?",
                "There is one budget for the whole step, not one for each prompt.",
                "left -= count after each piece",
            ),
        ),
        Check(
            "first_come_first_served",
            "The prompt that came first must be served first, however long it is.",
            _first_come,
            Hints(
                "Did you change the order of the prompts?",
                "The list is in the order of arrival, and the first may take all that is left.",
                "for name, read, total in prompts: ...",
            ),
        ),
        Check(
            "no_empty_piece",
            "A piece without a token was returned.",
            _no_empty_piece,
            Hints(
                "What happens when nothing is left?",
                "A prompt for which there is no room is not part of the step at all.",
                "if count > 0: pieces.append(...)",
            ),
        ),
        Check(
            "inputs_unchanged",
            "The caller's list of prompts is not the same any more.",
            _inputs_stay,
            Hints(
                "Look for pop, append or = on the list that you were given.",
                "The caller still needs its list; a step says what to run, it does not book it.",
                "Build a new list for the pieces.",
            ),
        ),
        Check(
            "value",
            "3 answers, budget 20, a at 4 of 10, b at 0 of 30: a from 4 to 10, b from 0 to 11.",
            _value,
            Hints(
                "Work this case out by hand.",
                "17 tokens are left: 6 for a, which ends with them, and 11 for b.",
                "Answers first, then each prompt in turn takes min(left, total - read).",
            ),
        ),
    ),
)
