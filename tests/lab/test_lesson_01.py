"""Lesson 01's helpers: tokens as tables, the experiment with keys and values, its buttons."""

import torch

from minipd.lab.attention_steps import (
    STEPS,
    changes_table,
    first_head_weights,
    layers_in_words,
    record,
    same_bits,
    step_html,
    summary_table,
    watch_changes,
)
from minipd.lab.attention_widget import AttentionView
from minipd.lab.changed_notes import WHY_NOT, changed_layers, changed_tokens
from minipd.lab.token_table import best_table, code_table, four_tokens, groups, token_table
from minipd.model.load import load


class Bytes:
    """A tokenizer that has every byte, and nothing else, as a token."""

    def decode(self, ids):
        return bytes(ids).decode(errors="replace")


def causal(layer, q, k, v, masked=True):
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return sdpa(q, k, v, is_causal=masked, enable_gqa=True)[0].transpose(0, 1)


def careless(layer, q, k, v):
    """Attention without a mask: everybody sees everybody."""
    return causal(layer, q, k, v, masked=False)


def four_changes(attend=causal):
    model = load("mini")
    ids, swaps = four_tokens(model.tokenizer)
    return watch_changes(model.decoder, model.tokenizer, ids, swaps, attend)


def test_bytes_of_one_character_stand_together():
    ids = list("a수".encode())
    assert groups(Bytes(), ids) == [("a", ids[:1]), ("수", ids[1:])]
    table = token_table(Bytes(), ids)
    assert table["tokens"] == [1, 3] and table["text"] == ["'a'", "'수'"]


def test_half_a_character_at_the_end_is_shown_all_the_same():
    ids = list("a수".encode())[:-1]
    assert groups(Bytes(), ids)[-1][1] == ids[1:]


def test_the_best_tokens_come_first_with_their_shares():
    scores = torch.tensor([0.0, 2.0, 1.0, -5.0])
    table = best_table(Bytes(), scores, 2)
    assert table["logit"] == ["2.00", "1.00"] and table["share"] == ["66.5%", "24.5%"]


def test_four_tokens_each_have_another_one_to_be_replaced_by():
    ids, swaps = four_tokens(load("mini").tokenizer)
    assert len(ids) == len(swaps) == 4
    assert all(a != b for a, b in zip(ids, swaps, strict=True))


def test_the_mask_keeps_everything_before_a_change_bit_for_bit():
    for change in four_changes():
        for layer, flags in enumerate(change.same):
            for token, same in enumerate(flags):
                expected = token < change.place or (layer == 0 and token != change.place)
                assert same == expected, (change.place, layer, token)


def test_without_the_mask_a_later_token_changes_earlier_ones():
    last = four_changes(careless)[-1]
    assert last.same[0] == [True, True, True, False]
    assert not any(any(flags) for flags in last.same[1:])


def test_recording_changes_no_number():
    model = load("mini")
    ids = torch.tensor([5, 6, 7])
    kept, queries = record(model.decoder, ids.tolist(), causal)
    again, _ = record(model.decoder, ids.tolist(), causal)
    assert all(map(all, same_bits(kept, again)))
    c = model.config
    assert len(kept) == len(queries) == c.num_layers
    assert kept[0][0].shape == (3, c.num_kv_heads, c.head_dim)


def test_first_head_s_weights_agree_with_torch():
    q, k = torch.randn(5, 4, 8), torch.randn(5, 2, 8)
    eye = torch.eye(5)[None, None]
    heads = (x[:, 0][None, None] for x in (q, k))
    expected = torch.nn.functional.scaled_dot_product_attention(*heads, eye, is_causal=True)[0, 0]
    torch.testing.assert_close(torch.tensor(first_head_weights(q, k)), expected)


def test_layers_are_told_in_words():
    assert layers_in_words([True, True]) == "same in all 2 layers"
    assert layers_in_words([False, False]) == "changed in all 2 layers"
    assert layers_in_words([True, False, False]) == "changed from layer 2 on"
    assert layers_in_words([True, False, True]) == "changed in 1 of 3 layers"
    table = changes_table(["a", "b"], [[True, False], [True, False]])
    assert table["its key and value"] == ["same in all 2 layers", "changed in all 2 layers"]


def test_every_step_of_every_change_has_a_table_and_a_sentence():
    changes = four_changes()
    for change in changes:
        for step in STEPS:
            page = step_html(change, step)
            assert "<table>" in page and f"of {len(STEPS)}" in page and "<p>" in page
    hidden = changes[0].table("attention")["at '" + changes[0].words[3] + "'"]
    assert hidden[:3] == ["hidden"] * 3 and hidden[3] != "hidden"
    assert changes[2].table("first_kv")["key and value"].count("CHANGED") == 1
    assert changes[2].table("second_kv")["key and value"].count("CHANGED") == 2
    assert len(summary_table(changes)["token 1"]) == 4


def test_the_buttons_choose_a_change_and_go_through_the_steps():
    view = AttentionView(four_changes())
    choices, steps = view.widget.children[0].children, view.widget.children[1].children
    assert "Step 1 of 5" in view.page.value
    back, forward = steps
    back.click()
    assert "Step 1 of 5" in view.page.value
    for _ in range(9):
        forward.click()
    assert "Step 5 of 5" in view.page.value and "role='status'" in view.page.value
    before = view.page.value
    choices[0].click()
    assert "Step 5 of 5" in view.page.value and view.page.value != before
    assert all(b.description.startswith("Replace ") for b in choices)


def test_what_the_predictions_reveal_is_read_off_the_measurement():
    changes = four_changes()
    assert changed_tokens(changes[3].same) == "Only the last one"
    assert changed_layers(changes[0].same) == "In every layer but the first"
    careful, without = changes[3].same, four_changes(careless)[3].same
    assert changed_tokens(without) == "All four" in WHY_NOT["01.last"]
    assert changed_tokens([[True] * 4 for _ in careful]) in WHY_NOT["01.last"]
    assert changed_tokens([[True, False, True, False]]) == "Tokens [2, 4]"
    others = [[[True] * 2] * 3, [[True, False]] * 3, [[True] * 2] * 2 + [[True, False]]]
    assert [changed_layers(same) for same in others] == list(WHY_NOT["01.first"])
    assert changed_layers([[True, False], [True, True], [True, True]]) == "In layers [1]"


def test_lines_of_code_are_shown_with_the_rows_and_the_shape_of_what_they_make():
    made = code_table({"a": torch.tensor([[0.26894, 0.73106]]), "m": torch.tensor([True])})
    assert made["makes"] == ["[[0.27, 0.73]]", "[True]"] and made["shape"] == ["1 x 2", "1"]
