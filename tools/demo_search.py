"""Index the glyphs that the demo's network never saw, and open the search page: `make demo-search`.

With --check it starts the page, searches once as a browser would, stops, and says whether all went well.
"""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from ccp_dml.data.glyphs import GlyphSource, load_glyphs
from ccp_dml.serving.listed_images import list_images
from ccp_dml.serving.search.index_writer import add_images
from ccp_dml.serving.stored_model import load

SECONDS_TO_START = 120


def write_unseen_glyphs(folder: Path) -> Path:
    """Write the glyphs of the test half as PNG files, a folder per character; those that are there stay."""
    test = load_glyphs().test.queries
    assert isinstance(test.source, GlyphSource)
    for number, (position, label) in enumerate(zip(test.positions.tolist(), test.labels.tolist(), strict=True)):
        file = folder / test.class_names[label] / f"{number:05d}.png"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            scratch = file.with_suffix(".part")
            test.source.picture(position).save(scratch, "PNG")
            scratch.replace(file)
    return folder


def check(index: Path, query: Path) -> None:
    """Start the server on a free port, search with `query`, and stop it."""
    command = [sys.executable, "-m", "ccp_dml", "serve", str(index), "--port", "0", "--map", "pca"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert server.stdout is not None
    try:
        address = next(word for word in server.stdout.readline().split() if word.startswith("http://"))
        request = urllib.request.Request(
            f"{address}/search?k=5", query.read_bytes(), {"Content-Type": "image/png"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=SECONDS_TO_START) as response:
            nearest = json.load(response)["results"]
        with urllib.request.urlopen(address, timeout=SECONDS_TO_START) as response:
            page = response.read()
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=SECONDS_TO_START)
        server.stdout.close()
    if code != 0 or b"search.js" not in page or nearest[0]["distance"] > 1e-3:
        raise SystemExit(f"The demo does not work: exit code {code}, nearest {nearest[:1]}")
    print(f"Checked: {address} found {nearest[0]['path']} at distance {nearest[0]['distance']:.4f}, and stopped.")


def main(run: Path, is_check: bool) -> None:
    folder = run.parent / "search"
    images = write_unseen_glyphs(folder / "glyphs")
    index = folder / "glyphs.index"
    print(f"Indexing {images} ...", flush=True)
    changes = add_images(index, load(run), run, list_images([images]))
    print(f"{index}: {changes.added:,} images added, {changes.unchanged:,} unchanged.", flush=True)
    if is_check:
        check(index, next(iter(sorted(images.rglob("*.png")))))
    else:
        os.execv(sys.executable, [sys.executable, "-m", "ccp_dml", "serve", str(index)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--check" in sys.argv[2:])
