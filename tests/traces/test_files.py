from __future__ import annotations

import gzip

import pytest

from traces import InputError
from traces.files import read_text, write_text


def test_text_is_written_as_utf8_with_unix_line_ends(tmp_path):  # F67
    write_text(tmp_path / "out.csv", "é\n日\n")
    assert (tmp_path / "out.csv").read_bytes() == b"\xc3\xa9\n\xe6\x97\xa5\n"


def test_gzip_by_suffix_without_a_time_stamp(tmp_path):
    write_text(tmp_path / "a.gz", "same")
    write_text(tmp_path / "b.gz", "same")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"same"


def test_missing_directory_is_the_users_to_mend(tmp_path):
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        write_text(tmp_path / "nowhere" / "out.csv", "text")


def test_failed_write_leaves_nothing_behind(tmp_path):
    (tmp_path / "out").mkdir()  # the rename onto a directory fails after the text was written beside it
    with pytest.raises(InputError, match="cannot be written"):
        write_text(tmp_path / "out", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_text(tmp_path / "nowhere.csv")
