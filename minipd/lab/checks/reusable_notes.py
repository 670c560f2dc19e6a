"""Checks of exercise 01.3: how much of a new text is covered by notes about an older one."""

from __future__ import annotations

from minipd.lab.hints import Answer, Check, Exercise, Hints


def _count(answer: Answer, kept_ids: list[int], new_ids: list[int]) -> int:
    return int(answer(list(kept_ids), list(new_ids)))


def _returns_a_number(answer: Answer) -> bool:
    made = answer([1, 2, 3], [1, 2, 9])
    return isinstance(made, int) and not isinstance(made, bool)


def _edges(answer: Answer) -> bool:
    cases = {((), (4, 5)): 0, ((4, 5), (4,)): 0, ((4, 5, 6, 7), (4, 5, 6)): 2, ((8,), (4, 8)): 0}
    return all(_count(answer, [*kept], [*new]) == right for (kept, new), right in cases.items())


REUSABLE_NOTES = Exercise(
    "01.3",
    "Which notes still hold?",
    "reusable_notes",
    (
        Check(
            "a_number",
            "reusable_notes must return a whole number: how many tokens.",
            _returns_a_number,
            Hints(
                "Look at the last line of your function.",
                "Asked is for how many tokens the notes hold, not which tokens those are.",
                "Return a count, for example the place of the first difference.",
            ),
        ),
        Check(
            "one_token_must_pass",
            "When the same text comes again, one token still has to go through the model.",
            lambda answer: _count(answer, [1, 2, 3], [1, 2, 3]) <= 2,
            Hints(
                "Where would the scores for the next token come from?",
                "Notes hold keys and values; scores come out of a pass, so the last token of the "
                "new text must make one. Real engines have tripped over this.",
                "Never return more than len(new_ids) - 1.",
            ),
        ),
        Check(
            "part_may_hold",
            "Two texts that begin alike and end differently: the beginning's notes still hold.",
            lambda answer: _count(answer, [1, 2, 3, 4], [1, 2, 9, 9]) > 0,
            Hints(
                "Must a change at the end spoil the beginning?",
                "Changing the last token left all earlier keys and values as they were.",
                "Compare token by token from the front and stop at the first difference.",
            ),
        ),
        Check(
            "nothing_after_a_change",
            "Kept 1 2 3 4, new 1 9 3 4: only the first token's notes hold.",
            lambda answer: _count(answer, [1, 2, 3, 4], [1, 9, 3, 4]) <= 1,
            Hints(
                "A token is the same as before. Are its notes?",
                "Every token behind a changed one has looked at it, and from the second layer on "
                "its keys and values are others.",
                "Stop at the first difference; what comes after it does not count.",
            ),
        ),
        Check(
            "no_note_wasted",
            "Kept 1 2 3 4, new 1 2 9 9: the notes of two tokens hold.",
            lambda answer: _count(answer, [1, 2, 3, 4], [1, 2, 9, 9]) == 2,
            Hints(
                "Which token of this example goes through the model first?",
                "The rule about the last token is no reason to give up a note when tokens behind "
                "the difference have to pass anyway.",
                "Limit the place of the first difference to len(new_ids) - 1; do not subtract.",
            ),
        ),
        Check(
            "place_matters",
            "Kept 1 2 3, new 2 1 3 5: no note holds.",
            lambda answer: _count(answer, [1, 2, 3], [2, 1, 3, 5]) == 0,
            Hints(
                "Does it matter where a token stands?",
                "A token's notes are made from everything before it, so the same token at another "
                "place has other notes.",
                "Compare kept_ids[i] with new_ids[i], place by place.",
            ),
        ),
        Check(
            "longer_text_uses_all",
            "A longer text that begins with all of the kept one: all three notes hold.",
            lambda answer: _count(answer, [1, 2, 3], [1, 2, 3, 4, 5]) == 3,
            Hints(
                "Which text does the rule about the last token speak of?",
                "The new text's last token has to pass; every token of the kept text has notes.",
                "The limit is min(len(kept_ids), len(new_ids) - 1).",
            ),
        ),
        Check(
            "edges",
            "Nothing kept, a new text of one token, or one that ends early: count again.",
            _edges,
            Hints(
                "Try your function on the shortest lists that you can think of.",
                "With nothing kept no note holds; a text of one token lets that one pass.",
                "Walk through range(min(len(kept_ids), len(new_ids) - 1)) and nothing else.",
            ),
        ),
    ),
)
