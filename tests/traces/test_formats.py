"""Every format: recognised, read, and wrong in the same words."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from tests.traces.samples import CSV, JSON_LINES, TEXTS, TIMED, write
from traces import InputError, load
from traces.files import read_text
from traces.formats import FORMATS, recognise


def lists(path: Path, **options: object) -> tuple[list[float], list[int], list[int]]:
    workload = load(path, **options)
    return workload.arrival_s.tolist(), workload.prompt_tokens.tolist(), workload.output_tokens.tolist()


def test_every_registered_format_has_a_sample():
    assert set(TEXTS) == set(FORMATS)


@pytest.mark.parametrize("name", TEXTS)
def test_recognised_from_content_alone(tmp_path, name):
    assert recognise(read_text(write(tmp_path, TEXTS[name]))) == name


@pytest.mark.parametrize("name", TIMED)
def test_timed_formats_give_the_same_two_requests(tmp_path, name):
    assert lists(write(tmp_path, TEXTS[name])) == ([0.0, 2.5], [100, 300], [20, 7])


@pytest.mark.parametrize(("name", "expected"), [("sharegpt", ([2, 4], [4, 2])), ("vllm-custom", ([2, 4], [20, 7]))])
def test_text_formats_without_tokenizer_estimate(tmp_path, name, expected):
    workload = load(write(tmp_path, TEXTS[name]))
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == expected
    assert any("estimated: 4.5 UTF-8 bytes per token" in note for note in workload.notes)


@pytest.mark.parametrize("name", TEXTS)
def test_byte_order_mark_changes_nothing(tmp_path, name):  # F30
    plain, marked = write(tmp_path, TEXTS[name]), write(tmp_path, TEXTS[name], "marked.txt", "utf-8-sig")
    assert lists(marked) == lists(plain)


@pytest.mark.parametrize("name", TEXTS)
def test_carriage_returns_and_blank_last_lines_change_nothing(tmp_path, name):  # F31
    windows = TEXTS[name].replace("\n", "\r\n") + "\r\n\r\n"
    assert lists(write(tmp_path, windows, "windows.txt")) == lists(write(tmp_path, TEXTS[name]))


@pytest.mark.parametrize("name", TEXTS)
def test_gzip_is_told_by_content_not_by_name(tmp_path, name):
    packed = tmp_path / "packed.txt"
    packed.write_bytes(gzip.compress(TEXTS[name].encode()))
    assert lists(packed) == lists(write(tmp_path, TEXTS[name]))


@pytest.mark.parametrize("name", CSV)
def test_bad_cell_is_named(tmp_path, name):
    bad = TEXTS[name].replace("300", "3oo")
    with pytest.raises(
        InputError, match=r"trace\.txt:3: column .*: value '3oo', expected a whole number of at least 0"
    ):
        load(write(tmp_path, bad))


@pytest.mark.parametrize("name", ["mooncake", "vllm-timed"])
def test_bad_json_value_is_named(tmp_path, name):
    bad = TEXTS[name].replace("300", '"3oo"')
    with pytest.raises(InputError, match=r'trace\.txt:2: column input_length: value "3oo", expected a whole number'):
        load(write(tmp_path, bad))


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("vllm-bench", "300", "-300", r"request 1: column input_lens: value -300, expected a whole number"),
        ("vllm-custom", '"output_tokens": 7', '"output_tokens": 7.5', r"2: column output_tokens: value 7\.5, expected"),
        ("sharegpt", '"p' + "p" * 17 + '"', "18", r"conversation 1: column value: value 18, expected text"),
        (
            "azure",
            "2023-11-16 18:15:49.1805900",
            "yesterday",
            r"3: column TIMESTAMP: value 'yesterday', expected a date",
        ),
        (
            "azure",
            "2023-11-16 18:15:49",
            "2423-11-16 18:15:49",
            r"3: column TIMESTAMP: value '2423-.*, expected a date",
        ),
        ("burstgpt", "7.5", "soon", r"3: column Timestamp: value 'soon', expected a number"),
        ("lengths", "2.5", "nan", r"3: column arrival_s: value 'nan', expected a number"),
        ("lengths", "300", "-300", r"3: column prompt_tokens: value '-300', expected a whole number of at least 0"),
        ("lengths", "300,7", "300", r"3: the row has 2 columns, expected 3"),
        ("mooncake", "2500", "NaN", r"2: column timestamp: value NaN, expected a number"),
        ("mooncake", "[0]}\n{", "[0]}\n[", r"2: not valid JSON at character"),
        (
            "mooncake",
            '"hash_ids": [0]}\n{',
            '"hash_ids": ["x"]}\n{',
            r"1: column hash_ids: value \[\"x\"\], expected a list",
        ),
    ],
)
def test_bad_row_is_named(tmp_path, name, old, new, message):
    assert old in TEXTS[name]
    with pytest.raises(InputError, match=r"trace\.txt:? ?" + message):
        load(write(tmp_path, TEXTS[name].replace(old, new)), trace_format=name)


@pytest.mark.parametrize("name", JSON_LINES)
def test_truncated_line_is_named(tmp_path, name):  # F31
    first, second = TEXTS[name].splitlines()
    with pytest.raises(InputError, match=r"trace\.txt:1: not valid JSON at character \d+: "):
        load(write(tmp_path, f"{first[:-5]}\n{second}\n"))


def test_sharegpt_array_as_json_lines_says_what_was_found(tmp_path):  # F32
    message = "expected vllm-custom, which is JSON Lines; found a JSON array that looks like sharegpt"
    with pytest.raises(InputError, match=message):
        load(write(tmp_path, TEXTS["sharegpt"]), trace_format="vllm-custom")


def test_json_lines_as_sharegpt_says_what_was_found(tmp_path):  # F32
    message = "expected sharegpt, which is a JSON array; found JSON Lines that looks like mooncake"
    with pytest.raises(InputError, match=message):
        load(write(tmp_path, TEXTS["mooncake"]), trace_format="sharegpt")


@pytest.mark.parametrize("name", CSV)
def test_missing_column_names_the_header_found(tmp_path, name):  # F27
    header, *rows = TEXTS[name].splitlines()
    columns = header.split(",")
    broken = header.replace(columns[-1] if name == "lengths" else columns[2], "Something")
    with pytest.raises(InputError, match=r"trace\.txt:1: no column .*; the header is .*Something"):
        load(write(tmp_path, "\n".join([broken, *rows])), trace_format=name)


def test_missing_key_names_the_keys_found(tmp_path):
    text = TEXTS["mooncake"].replace('"output_length": 7', '"output": 7')
    with pytest.raises(
        InputError, match="2: no column output_length; the columns are timestamp, input_length, output,"
    ):
        load(write(tmp_path, text))


@pytest.mark.parametrize("name", CSV)
def test_header_without_rows_is_an_empty_trace(tmp_path, name):
    header = TEXTS[name].splitlines()[0]
    with pytest.raises(InputError, match="the trace holds no request"):
        load(write(tmp_path, header + "\n"))


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_empty_file(tmp_path, text):
    with pytest.raises(InputError, match="the file is empty"):
        load(write(tmp_path, text))


def test_unknown_content_lists_the_formats(tmp_path):
    with pytest.raises(
        InputError, match="format not recognised: CSV with the columns a, b; --trace-format forces azure"
    ):
        load(write(tmp_path, "a,b\n1,2\n"))


def test_unknown_format_lists_the_known(tmp_path):
    with pytest.raises(InputError, match="unknown trace format 'parquet'; known: azure"):
        load(write(tmp_path, TEXTS["azure"]), trace_format="parquet")


@pytest.mark.parametrize("name", sorted({*TIMED, "vllm-custom"}))
def test_zero_output_is_no_request_in_any_format(tmp_path, name):  # F16
    # the second request's 7 output tokens become 0
    none = re.sub(r"(?<=[ ,])7(?=[,\n\]}])", "0", TEXTS[name])
    workload = load(write(tmp_path, none))
    assert workload.output_tokens.tolist() == [20]
    assert sum(workload.dropped.values()) == 1


def test_zero_output_is_dropped_and_counted(tmp_path):  # F16
    workload = load(write(tmp_path, "prompt_tokens,output_tokens\n5,5\n10,0\n6,6\n"))
    assert workload.prompt_tokens.tolist() == [5, 6]
    assert workload.dropped == {"0 output tokens": 1}


def test_zero_prompt_is_reported_on_its_own(tmp_path):  # F26
    workload = load(write(tmp_path, "prompt_tokens,output_tokens\n5,5\n0,4\n6,0\n"))
    assert workload.dropped == {"0 prompt tokens": 1, "0 output tokens": 1}


def test_unsorted_rows_are_sorted_stably_and_noted(tmp_path):  # F25
    # at 10, 5, 7, 5 s: from the earliest on 0, 0, 2, 5, and of the two at 5 s the first written stays first
    workload = load(write(tmp_path, "arrival_s,prompt_tokens,output_tokens\n10,1,11\n5,2,12\n7,3,13\n5,4,14\n"))
    assert workload.arrival_s.tolist() == [0, 0, 2, 5]
    assert workload.prompt_tokens.tolist() == [2, 4, 3, 1]
    assert workload.output_tokens.tolist() == [12, 14, 13, 11]
    assert any("not in order of time" in note for note in workload.notes)


def test_option_of_another_format_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"--keep-failed applies to burstgpt files; .* is azure"):
        load(write(tmp_path, TEXTS["azure"]), keep_failed=True)


def test_text_is_utf8_whatever_the_locale(tmp_path):  # F67
    # 6 bytes of accents and 9 of CJK: ceil(6 / 4.5) = 2 and ceil(9 / 4.5) = 2 estimated tokens
    text = '[{"conversations": [{"from": "human", "value": "éèü"}, {"from": "gpt", "value": "日本語"}]}]'
    assert lists(write(tmp_path, text))[1:] == ([2], [2])


def test_other_encoding_names_line_and_byte(tmp_path):
    with pytest.raises(InputError, match=r"trace\.txt:2: byte 0xe9 is not UTF-8"):
        load(write(tmp_path, "prompt_tokens,output_tokens\né,1\n", encoding="latin-1"))


def test_damaged_gzip(tmp_path):
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(TEXTS["azure"].encode())[:-12])
    with pytest.raises(InputError, match="damaged gzip file"):
        load(path)


def test_line_separator_inside_json_text_is_no_line_end(tmp_path):
    text = '{"prompt": "one\u2028two", "output_tokens": 3}\n'
    assert lists(write(tmp_path, text))[2] == [3]


def test_counts_written_as_floats_are_read(tmp_path):
    assert lists(write(tmp_path, "prompt_tokens,output_tokens\n5.0,7.0\n"))[1:] == ([5], [7])
