"""The freeze that lesson 00 lets one watch: pictures from events, and a real run of it."""

import psutil
import pytest

from minipd.lab import freeze
from minipd.lab.freeze import on_real_hardware, rows, screens_svg, watch_freeze
from minipd.timeline import Event


def tokens(request_id, *times):
    return [Event(t_s=t_s, kind="token", request_id=request_id, worker="worker-0") for t_s in times]


def test_screens_show_each_chat_and_its_longest_pause_but_no_worker():
    events = tokens("chat-000", 1.0, 1.1, 1.7) + tokens("chat-001", 1.0, 1.2)
    events += tokens("document-002", 1.3)
    picture = screens_svg(events)
    assert picture.rows == (("A", "3", "0.60", "0.10"), ("B", "2", "0.20", "0.00"))
    assert "Screen A: 3 tokens, longest pause 0.60 s, from 0.10 s." in picture.alt
    assert picture.svg.count("<polyline") >= 5
    for word in ("worker", "prefill", "document"):
        assert word not in picture.svg + picture.alt, "the cause is not given away"


def test_screens_without_chats_are_refused():
    with pytest.raises(ValueError, match="chats got tokens"):
        screens_svg(tokens("document-000", 1.0))


def test_documents_come_while_all_chats_write_whatever_the_speed():
    for step_s in (0.001, 0.05):
        made = rows(step_s)
        chats = [row for row in made if row.kind == "chat"]
        documents = [row for row in made if row.kind == "document"]
        assert len(chats) == 4 and len(documents) == 2
        for chat in chats:
            assert chat.arrival_s + chat.output_tokens * step_s > documents[-1].arrival_s
        assert documents[0].arrival_s > chats[-1].arrival_s + 10 * step_s


def test_the_data_centre_s_figures_stand_beside_the_learner_s():
    assert "exaggerates" in on_real_hardware(20.0) and "1.8 tokens" in on_real_hardware(20.0)
    assert "27" in on_real_hardware(1.0) and "exaggerates" not in on_real_hardware(1.0)


@pytest.fixture(scope="module")
def watched():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "minipd.measure.contest.usable_cpus", lambda: [psutil.Process().cpu_affinity()[0]]
        )
        return watch_freeze("tiny")


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.skipif(not hasattr(psutil.Process, "cpu_affinity"), reason="no pinning here")
def test_it_runs_on_one_core_and_says_what_that_cannot_show(watched):
    assert "share 1 core" in watched.note
    assert watched.tokens > 0 and watched.longest.request_id.startswith("chat")
    for outcome in (watched.together, watched.apart):
        assert sum(outcome.run.leaked_blocks.values()) == 0
        lengths = [len(answer) for answer in outcome.run.outputs.values()]
        assert sorted(lengths) == [freeze.SUMMARY_TOKENS] * 2 + [freeze.CHAT_TOKENS] * 4
    assert watched.together.run.outputs.keys() == watched.apart.run.outputs.keys()
    assert len(watched.screens().rows) == 4
    assert "one worker reads, one writes" in watched.workers().alt
    assert len(watched.compared()["in tokens"]) == 2


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.skipif(not hasattr(psutil.Process, "cpu_affinity"), reason="no pinning here")
def test_it_leaves_no_worker_behind(watched):
    words = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
    assert [line for line in words if "spawn_main" in line] == []
