"""outputs.jsonl: the text of each request, on disk as soon as it is finished, whatever happens to the run after."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from calibrate.live.texts import Texts
from sim.control.log import FINISHED, EventLog
from traces.errors import InputError
from traces.workload import Workload

FILE = "outputs.jsonl"


class Outputs:
    """One line a finished request: request_id, task, prompt_tokens, output_tokens (ids), text, finish_reason,
    arrival_s, finish_s. Raises InputError if the file cannot be made."""

    def __init__(self, directory: Path, workload: Workload, texts: Texts, log: EventLog, tokenizer: Any) -> None:
        self.workload = workload
        self.texts = texts
        self.log = log
        self.tokenizer = tokenizer
        self._written = np.zeros(len(workload), np.bool_)
        path = directory / FILE
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for stale in ("results.json", "requests.parquet"):  # of an earlier run: not those of these texts
                (directory / stale).unlink(missing_ok=True)
            self._file: TextIO = path.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from None

    def write_finished(self) -> None:
        """Append what has finished since the last call."""
        new = np.flatnonzero((self.log.requests.status == FINISHED) & ~self._written)
        for request in new.tolist():
            self._file.write(json.dumps(self._line(request), ensure_ascii=False) + "\n")
        if len(new):
            self._written[new] = True
            self._file.flush()

    def close(self) -> None:
        self.write_finished()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _line(self, request: int) -> dict[str, Any]:
        ids, requests = self.texts.output(request), self.log.requests
        return {
            "request_id": request,
            "task": self.workload.task[int(self.workload.task_id[request])],
            "prompt_tokens": int(self.workload.prompt_tokens[request]),
            "output_tokens": ids,
            "text": self.tokenizer.decode(ids, skip_special_tokens=True),
            "finish_reason": "stop" if self.texts.ended[request] else "length",
            "arrival_s": float(requests.arrival_s[request]),
            "finish_s": float(requests.finish_s[request]),
        }
