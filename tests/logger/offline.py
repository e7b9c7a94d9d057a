"""What W&B has written offline, read back: a LevelDB log of its own records."""

import json
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

_BLOCK, _HEADER, _WHOLE, _LAST = 32768, 7, 1, 4


def records(path: Path):
    """Yield the records of a file."""
    content = path.read_bytes()
    assert content[:4] == b":W&B"
    place, parts = _HEADER, b""
    while place < len(content):
        if _BLOCK - place % _BLOCK < _HEADER:  # padding
            place += _BLOCK - place % _BLOCK
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts += content[place + _HEADER : place + _HEADER + length]
        place += _HEADER + length
        if kind in (_WHOLE, _LAST):
            yield Record.FromString(parts)
            parts = b""


def read(path: Path):
    """Read a run: what it was made with, its configuration and the rows of its history."""
    run, config, history = None, {}, []
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
        if kind in ("run", "config"):
            updates = (record.run.config if kind == "run" else record.config).update
            config |= {item.key: json.loads(item.value_json) for item in updates if item.key}
        if kind == "history":
            items = record.history.item
            history.append({"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items})
    return run, config, history
