from __future__ import annotations

import gzip

import numpy as np
import pytest

from calibrate.vllm.bench import read_bench
from calibrate.vllm.log import read_log
from calibrate.vllm.responses import read_responses
from calibrate.vllm.scrape import Counters, read_scrape
from tests.calibrate import vllm_files as files
from traces.errors import InputError


def one_line(error: pytest.ExceptionInfo[InputError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# the log


def test_a_step_of_the_log(tmp_path):
    text = files.BANNER + files.POOL + files.step_line(25, 1, 49, 7, 28, 157.95)
    log = read_log(files.write(tmp_path / "s.log", text))
    steps = log.steps
    assert (steps.contexts[0], steps.context_tokens[0], steps.generations[0], steps.generation_tokens[0]) == (
        1,
        49,
        7,
        28,
    )
    assert steps.seconds[0] == pytest.approx(0.15795)
    assert steps.kv_tokens[0] == pytest.approx(102.4)  # 2.5 % of 4096
    assert (log.kv_tokens, log.version, log.draft_tokens, log.gaps) == (4096, "0.32.0", 3, ())  # 28 / 7 - 1


def test_a_gzipped_log(tmp_path):
    path = tmp_path / "s.log.gz"
    path.write_bytes(gzip.compress(files.step_line(0, 0, 0, 1, 1, 50).encode()))
    assert len(read_log(path).steps) == 1


def test_drafts_of_different_lengths_are_no_fixed_k(tmp_path):
    text = files.step_line(0, 0, 0, 2, 8, 60) + files.step_line(1, 0, 0, 2, 5, 60)
    assert read_log(files.write(tmp_path / "s.log", text)).draft_tokens is None


def test_engines_that_are_interleaved_are_told_apart(tmp_path):
    # by itself each engine counts 0, 1: nothing is missing, though the file's own order is 0, 0, 1, 1
    text = "".join(files.step_line(i, 0, 0, 1, 1, 50 + e, engine=e) for i in (0, 1) for e in (0, 1))
    log = read_log(files.write(tmp_path / "s.log", text))
    assert np.round(1e3 * log.steps.seconds).tolist() == [50, 50, 51, 51]
    assert len(log.gaps) == 1
    assert "2 engines" in log.gaps[0]


def test_cut_and_missing_lines_are_counted(tmp_path):
    text = files.step_line(0, 0, 0, 1, 1, 50) + files.step_line(1, 0, 0, 1, 1, 50)[:-60] + "\n"
    text += files.step_line(4, 0, 0, 1, 1, 50)
    gaps = read_log(files.write(tmp_path / "s.log", text)).gaps
    # line 1 is cut; from 0 to 4 steps 1, 2 and 3 are missing
    assert "1 of 3 step lines are cut" in gaps[0]
    assert "3 steps are missing" in gaps[1]


@pytest.mark.parametrize("text", ["", "INFO Avg prompt throughput: 38.6 tokens/s\n"])
def test_a_log_without_steps_says_which_option_is_missing(tmp_path, text):
    with pytest.raises(InputError) as error:
        read_log(files.write(tmp_path / "s.log", text))
    assert "--enable-logging-iteration-details" in one_line(error)


def test_a_log_of_an_idle_engine(tmp_path):
    with pytest.raises(InputError) as error:
        read_log(files.write(tmp_path / "s.log", files.step_line(0, 0, 0, 0, 0, 0.1)))
    assert "none of the 1 engine steps" in one_line(error)


# the bench result


def test_steps_are_told_by_when_clients_saw_tokens(tmp_path):
    # written out in `closed_loop`; the cache holds prompt + tokens so far: 20, 40 + 21, 41 + 22, 42 + 23, 43
    steps = read_bench(files.closed_loop(tmp_path / "b.json")).steps()
    assert np.round(1e3 * steps.seconds, 6).tolist() == [74, 99, 60, 60, 55]
    assert steps.contexts.tolist() == [1, 1, 0, 0, 0]
    assert steps.context_tokens.tolist() == [20, 40, 0, 0, 0]
    assert steps.generations.tolist() == [0, 1, 2, 2, 1]
    assert steps.kv_tokens.tolist() == [20, 61, 63, 65, 43]


def test_a_pause_is_no_step(tmp_path):
    requests = [{"prompt": 8, "output": 3, "start": s, "ttft": 0.06, "gaps": [0.05, 0.05]} for s in (0.0, 9.0)]
    steps = read_bench(files.bench_file(tmp_path / "b.json", requests)).steps()
    # three steps each; the one that ends at 9.06 began while nobody was served: its length is not known
    assert np.round(1e3 * steps.seconds, 6).tolist() == [60, 50, 50, 50, 50]


def test_steps_whose_tokens_came_at_once_are_left_out(tmp_path):
    gaps = [0.05, 0.05, 0.1, 0.0, 0.05, 0.05]  # the client slept through the third gap
    requests = [{"prompt": 8, "output": 7, "start": 0.0, "ttft": 0.06, "gaps": gaps}]
    steps = read_bench(files.bench_file(tmp_path / "b.json", requests)).steps()
    # 60, 50, 50, (100: two steps), (50: when it began is lost), 50
    assert np.round(1e3 * steps.seconds, 6).tolist() == [60, 50, 50, 50]


def test_accepted_tokens_are_what_came_beyond_one_a_step(tmp_path):
    requests = [{"prompt": 8, "output": 9, "start": 0.0, "ttft": 0.06, "gaps": [0.05] * 5}]
    run = read_bench(files.bench_file(tmp_path / "b.json", requests))
    assert (run.chunks.tolist(), run.accepted.tolist()) == ([5], [3])  # 9 - 1 - 5


def test_a_warm_cache_holds_whole_blocks_but_never_the_last_token(tmp_path):
    requests = [{"prompt": p, "output": 2, "start": 0.0, "ttft": 0.1, "gaps": [0.1]} for p in (15, 16, 17, 33)]
    run = read_bench(files.bench_file(tmp_path / "b.json", requests))
    assert run.cached_tokens(16).tolist() == [0, 0, 16, 32]


def test_arrivals_are_when_a_request_was_ready(tmp_path):
    requests = [{"prompt": 8, "output": 2, "start": s, "ttft": 0.1, "gaps": [0.1]} for s in (5.0, 5.5)]
    path = files.bench_file(tmp_path / "b.json", requests, queue_times=[0.0, 0.5], max_concurrency=1)
    assert read_bench(path).workload().arrival_s.tolist() == [0, 0]


def test_without_queue_times_all_requests_of_an_infinite_rate_were_ready_at_once(tmp_path):
    requests = [{"prompt": 8, "output": 2, "start": s, "ttft": 0.1, "gaps": [0.1]} for s in (5.0, 5.001, 5.2, 5.4)]
    options = {"queue_times": None, "max_concurrency": 2}
    path = files.bench_file(tmp_path / "b.json", requests, request_rate="inf", **options)
    assert read_bench(path).workload().arrival_s.tolist() == pytest.approx([0, 0.001, 0.001, 0.001])
    other = read_bench(files.bench_file(tmp_path / "b.json", requests, request_rate=3.0, **options))
    assert "no queue_times" in other.gaps[0]


def test_failures_are_counted_and_left_out(tmp_path):
    good = {"prompt": 8, "output": 2, "start": 0.0, "ttft": 0.1, "gaps": [0.1]}
    run = read_bench(files.bench_file(tmp_path / "b.json", [good, good | {"error": "Timeout"}, good | {"output": 0}]))
    assert len(run) == 1
    assert "1 of 3 requests failed" in run.gaps[0]
    assert "1 of 3 requests have no output" in run.gaps[1]


def test_a_dead_engine_is_an_error(tmp_path):
    request = {"prompt": 8, "output": 0, "start": 0.0, "ttft": 0.0, "gaps": [], "error": "refused"}
    with pytest.raises(InputError) as error:
        read_bench(files.bench_file(tmp_path / "b.json", [request]))
    assert "completed 0 of 1" in one_line(error)


@pytest.mark.parametrize("spoilt", [{"duration": None}, {"output_lens": [None]}, {"itls": [0.1]}, {"itls": [["x"]]}])
def test_a_spoilt_result_is_one_line(tmp_path, spoilt):
    request = {"prompt": 8, "output": 2, "start": 0.0, "ttft": 0.1, "gaps": [0.1]}
    with pytest.raises(InputError) as error:
        read_bench(files.bench_file(tmp_path / "b.json", [request], **spoilt))
    assert "b.json" in one_line(error)


def test_a_result_without_details_names_the_option(tmp_path):
    with pytest.raises(InputError) as error:
        read_bench(files.write(tmp_path / "b.json", '{"completed": 3, "duration": 1.0}'))
    assert "--save-detailed" in one_line(error)


# /metrics


def test_counters_of_a_scrape(tmp_path):
    scrape = read_scrape(files.write(tmp_path / "m.txt", files.scrape_text()))
    assert scrape.counters == Counters(100, 200, 120, (80, 40))
    assert (scrape.block_size, scrape.kv_tokens, scrape.kv_bytes, scrape.prefix_caching) == (16, 4096, 4096000, False)


def test_the_difference_of_two_scrapes():
    # a position that the earlier scrape did not know yet counts from zero
    assert Counters(100, 200, 120, (80, 40)) - Counters(10, 10, 5, (5,)) == Counters(90, 190, 115, (75, 40))


def test_a_server_without_speculation_has_no_counters(tmp_path):
    scrape = read_scrape(files.write(tmp_path / "m.txt", files.scrape_text().splitlines()[0] + "\n"))
    assert scrape.counters is None


def test_another_versions_names_are_missed_by_name(tmp_path):
    text = files.scrape_text().replace("accepted_tokens_total", "accepted_total")
    with pytest.raises(InputError) as error:
        read_scrape(files.write(tmp_path / "m.txt", text))
    assert "vllm:spec_decode_num_accepted_tokens_total missing" in one_line(error)


def test_a_file_that_is_no_scrape(tmp_path):
    with pytest.raises(InputError) as error:
        read_scrape(files.write(tmp_path / "m.txt", "python_gc_objects_collected_total 3.0\n"))
    assert "no metrics of vLLM" in one_line(error)


# responses


def test_steps_without_a_draft_are_told_by_the_tokens(tmp_path):
    # 12 tokens: 1 of the prefill, 2 + 0 accepted, 2 of the drafting steps themselves, so 7 of plain steps
    found = read_responses(files.write(tmp_path / "r.json", files.response_text([4, 4], [2, 0], 12)))
    assert (found[0].drafted, found[0].accepted, found[0].plain_steps) == ((4, 4), (2, 0), 7)


def test_one_response_a_line(tmp_path):
    text = files.response_text([3], [1], 3) + "\n" + files.response_text([3], [0], 2) + "\n"
    assert [each.accepted for each in read_responses(files.write(tmp_path / "r.jsonl", text))] == [(1,), (0,)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"usage": {"completion_tokens": 4}}', "--per-request-spec-decode-metrics detailed"),
        (files.response_text([3, 3], [4, 0], 8), "does not fit"),
        (files.response_text([3], [1, 1], 8), "does not fit"),
        ("nothing", "neither one JSON response"),
        ("", "neither one JSON response|holds no response"),
    ],
)
def test_responses_that_cannot_be_used(tmp_path, text, says):
    with pytest.raises(InputError, match=says) as error:
        read_responses(files.write(tmp_path / "r.json", text))
    one_line(error)
