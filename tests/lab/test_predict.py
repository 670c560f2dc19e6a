"""Predictions are kept before the measurement, shown beside it, and scored without hindsight."""

import importlib
import json
import math

import pytest

from minipd.lab.calibration import calibration_line, in_words, log_ratio
from minipd.lab.predict import (
    PredictionError,
    keep_prediction,
    kept_prediction,
    make_brackets,
    predict,
    reveal,
    typical_ratio,
)
from minipd.lab.predict_widget import PredictionView
from minipd.lab.progress import ProgressError, changed_progress, progress_path, read_progress
from minipd.lab.typed import read_number

lab = importlib.import_module("minipd.lab.predict")  # the package shows the function instead
EDGES = [10, 30, 90]


@pytest.fixture
def shown(monkeypatch):
    """Everything that would have been displayed, in order."""
    pages = []
    monkeypatch.setattr(lab, "display_html", pages.append)
    monkeypatch.setattr(lab, "display_widget", pages.append)
    return pages


def view(choices=()):
    brackets = [] if choices else make_brackets(EDGES, "GB/s")
    return PredictionView("00.x", "How fast?", "GB/s", brackets, 3.0, list(choices))


def buttons(widget):
    found = {widget.description: widget} if type(widget).__name__ == "Button" else {}
    for child in getattr(widget, "children", ()):
        found |= buttons(child)
    return found


def test_brackets_cover_everything_and_stand_for_their_geometric_middle():
    brackets = make_brackets(EDGES, "GB/s")
    labels = [bracket.label for bracket in brackets]
    assert labels == ["under 10 GB/s", "10 to 30 GB/s", "30 to 90 GB/s", "over 90 GB/s"]
    ratio = typical_ratio(EDGES)
    assert math.isclose(ratio, 3)
    values = [bracket.value(ratio) for bracket in brackets]
    middles = [math.sqrt(v) for v in (10 * 10 / 3, 300, 2700, 90 * 270)]
    assert all(map(math.isclose, values, middles))


@pytest.mark.parametrize("edges", [[10], [30, 10], [0, 10], [10, 10]])
def test_unusable_brackets_are_refused(edges):
    with pytest.raises(PredictionError, match="growing edges"):
        make_brackets(edges, "")


def test_half_and_twice_are_equally_far_off():
    assert log_ratio(5, 10) == -1 and log_ratio(20, 10) == 1
    assert in_words(1) == "a factor of 2 above the measurement"
    assert in_words(-2) == "a factor of 4 below the measurement"
    assert "within 10 %" in in_words(0.1)


def test_a_bracket_button_keeps_label_value_and_reason():
    made = view()
    made.reason.value = "it is a laptop"
    buttons(made.widget)["10 to 30 GB/s"].click()
    kept = kept_prediction("00.x")
    assert kept["bracket"] == "10 to 30 GB/s" and math.isclose(kept["value"], math.sqrt(300))
    assert kept["reason"] == "it is a laptop"
    assert "Kept: 10 to 30 GB/s because: it is a laptop" in made.status.value
    assert "aria-live='polite'" in made.status.value


def test_a_number_may_be_typed_instead():
    made = view()
    made.number.value = "twenty"
    buttons(made.widget)["Keep this number"].click()
    assert "Type a number" in made.status.value and not kept_prediction("00.x")
    made.number.value = "-3"
    buttons(made.widget)["Keep this number"].click()
    assert "above zero" in made.status.value
    made.number.value = "1,200"
    buttons(made.widget)["Keep this number"].click()
    assert kept_prediction("00.x")["value"] == 1200.0


def test_reveal_shows_both_and_keeps_both(shown):
    keep_prediction("00.x", 20.0, "GB/s", "a <guess>")
    assert reveal("00.x", 10.0, "GB/s") is None, "a value would be printed below the table"
    (page,) = shown
    assert "predicted" in page and "20 GB/s" in page and "10 GB/s" in page
    assert "a factor of 2 above" in page and "+1.00 doublings" in page
    assert "a &lt;guess&gt;" in page
    assert kept_prediction("00.x")["measured"] == 10.0


def test_after_the_measurement_the_first_prediction_stays(shown):
    keep_prediction("00.x", 20.0)
    reveal("00.x", 10.0)
    made = view()
    made.number.value = "10"
    buttons(made.widget)["Keep this number"].click()
    assert kept_prediction("00.x")["value"] == 20.0 and "first one stays" in made.status.value
    reveal("00.x", 12.0)
    assert kept_prediction("00.x")["measured"] == 10.0
    lab.forget_prediction("00.x")
    assert kept_prediction("00.x") == {}


def test_without_a_prediction_reveal_still_shows_the_measurement(shown):
    assert reveal("00.x", 10.0, "GB/s") is None
    assert "No prediction was made" in shown[0] and "10 GB/s" in shown[0]
    assert kept_prediction("00.x") == {}


def test_after_the_measurement_no_first_prediction_is_kept_either(shown):
    reveal("00.x", 10.0, "GB/s")
    made = view()
    buttons(made.widget)["10 to 30 GB/s"].click()
    assert kept_prediction("00.x") == {} and "none is kept now" in made.status.value
    buttons(made.widget)["Keep this reason"].click()
    assert kept_prediction("00.x") == {} and "none is kept now" in made.status.value
    assert "no prediction has been measured" in calibration_line()


def test_guesses_of_words_are_compared_as_words(shown):
    buttons(view(["the network", "a long prompt"]).widget)["the network"].click()
    reveal("00.x", "a long prompt", why_not={"the network": "none was in use.", "memory": "no."})
    assert "another one" in shown[0] and "what happened" in shown[0] and "measured" not in shown[0]
    assert "the network: none was in use." in shown[0] and "memory" not in shown[0]


def test_without_a_guess_every_wrong_choice_is_explained(shown):
    reveal("00.x", "a long prompt", why_not={"the network": "none <was>.", "memory": "enough."})
    assert "none &lt;was&gt;." in shown[0] and "memory: enough." in shown[0]


def test_a_reason_may_come_after_the_button(shown):
    made = view()
    made.reason.value = "early"
    assert kept_prediction("00.x") == {}
    buttons(made.widget)["Keep this reason"].click()
    assert "Predict first" in made.status.value
    buttons(made.widget)["10 to 30 GB/s"].click()
    made.reason.value = "it is a laptop"
    assert kept_prediction("00.x")["reason"] == "it is a laptop"
    assert "because: it is a laptop" in made.status.value
    reveal("00.x", 20.0)
    made.reason.value = "I knew it"
    assert kept_prediction("00.x")["reason"] == "it is a laptop"
    assert view().reason.value == "it is a laptop"


@pytest.mark.parametrize("typed", ["538,1", "1,25e3", "12,34,567", "nan", "inf", "1,2345"])
def test_a_comma_is_never_taken_for_a_point(typed):
    made = view()
    made.number.value = typed
    buttons(made.widget)["Keep this number"].click()
    assert kept_prediction("00.x") == {}
    assert "like 538.1" in made.status.value or "Type a number" in made.status.value


@pytest.mark.parametrize(("typed", "value"), [("1,200", 1200.0), ("1,234,567.5", 1234567.5)])
def test_commas_between_thousands_are_read(typed, value):
    assert read_number(typed) == value


def test_predict_without_widgets(shown):
    predict("00.x", "How fast?", "GB/s", brackets=EDGES, answer=25, reason="round figure")
    assert kept_prediction("00.x")["value"] == 25.0
    assert "Kept: 25 GB/s because: round figure" in shown[0]


def test_predict_needs_brackets_or_choices():
    with pytest.raises(PredictionError, match="either brackets"):
        predict("00.x", "?", "GB/s")


def test_the_calibration_line_follows_all_measured_predictions(shown):
    assert "no prediction has been measured" in calibration_line()
    for name, guess in (("00.a", 20.0), ("00.b", 40.0), ("01.c", 5.0), ("01.open", 7.0)):
        keep_prediction(name, guess)
        if name != "01.open":
            reveal(name, 10.0)
    keep_prediction("00.words", "a")
    reveal("00.words", "b")
    line = (
        "Calibration over 3 predictions in lessons 00, 01: typically a factor of 2 off; "
        "2 too high, 1 too low. Guesses in words: 0 of 1 right."
    )
    assert calibration_line() == line
    keep_prediction("01.d", 10.0)
    reveal("01.d", 10.0)
    assert "2 too high, 1 too low, 1 exactly right." in calibration_line()
    keep_prediction("01.words", "b")
    reveal("01.words", "b")
    assert calibration_line().endswith("Guesses in words: 1 of 2 right.")


def test_what_no_factor_can_be_taken_of_is_left_out(shown):
    keep_prediction("00.zero", 20.0)
    reveal("00.zero", 0.0)
    assert "not above zero" in shown[0]
    assert "no prediction has been measured" in calibration_line()


# -- the file ---------------------------------------------------------------------------------


def test_a_damaged_progress_file_is_set_aside_not_lost():
    keep_prediction("00.x", 20.0)
    progress_path().write_text("{ half a")
    assert read_progress()["predictions"] == {}
    assert progress_path().with_name("progress.json.damaged").read_text() == "{ half a"
    keep_prediction("00.y", 1.0)
    assert list(json.loads(progress_path().read_text())["predictions"]) == ["00.y"]


def test_an_error_inside_the_block_changes_nothing():
    keep_prediction("00.x", 20.0)
    with pytest.raises(KeyError), changed_progress() as record:
        record["predictions"].clear()
        raise KeyError
    assert kept_prediction("00.x")["value"] == 20.0


def test_a_place_that_cannot_be_written_is_explained(tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("MINIPD_PROGRESS", str(blocker / "progress.json"))
    with pytest.raises(ProgressError, match="MINIPD_PROGRESS"):
        keep_prediction("00.x", 20.0)
