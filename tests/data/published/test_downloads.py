"""Against a real server on this machine, which breaks off, lies and refuses as told."""

import hashlib
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ccp_dml.data.published.downloads import RemoteFile, TransferError, fetch
from ccp_dml.errors import UserError

CONTENTS = bytes(range(256)) * 1000
MD5 = hashlib.md5(CONTENTS).hexdigest()


@dataclass
class Behaviour:
    """What the server does: after how many bytes it hangs up, request by request, and whether it can continue."""

    contents: bytes = CONTENTS
    stop_after: list[int] = field(default_factory=list)
    ranges: bool = True
    states_length: bool = True
    requests: list[str | None] = field(default_factory=list)  # the Range of each


@pytest.fixture
def server():
    behaviour = Behaviour()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/gone":
                return self.send_error(404)
            asked = self.headers["Range"]
            behaviour.requests.append(asked)
            begin = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and behaviour.ranges else 0
            if begin and begin >= len(behaviour.contents):
                return self.send_error(416)
            body = behaviour.contents[begin:]
            self.send_response(206 if begin else 200)
            if behaviour.states_length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: behaviour.stop_after.pop(0)] if behaviour.stop_after else body)
            return None

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http_server:
        thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        behaviour.address = f"http://127.0.0.1:{http_server.server_port}"
        yield behaviour
        http_server.shutdown()
        thread.join()


def remote(server, *paths, **facts):
    return RemoteFile("set.tgz", tuple(f"{server.address}{path}" for path in paths or ("/set",)), **facts)


class Reports:
    def __init__(self):
        self.seen = []

    def __call__(self, *report):
        self.seen.append(report)


def assert_only_the_file(folder):
    assert [path.name for path in folder.iterdir()] == ["set.tgz"]
    assert (folder / "set.tgz").read_bytes() == CONTENTS


def test_whole_file_with_progress(server, tmp_path):
    reports = Reports()
    target = fetch(remote(server, md5=MD5, size=len(CONTENTS)), tmp_path / "new", reports)
    assert target == tmp_path / "new" / "set.tgz"
    assert_only_the_file(tmp_path / "new")
    assert reports.seen[0] == ("set.tgz", 0, len(CONTENTS))
    assert reports.seen[-1] == ("set.tgz", len(CONTENTS), len(CONTENTS))


def test_transfer_that_breaks_off_goes_on_where_it_stopped(server, tmp_path):
    server.stop_after = [100_000, 50_000]
    fetch(remote(server, md5=MD5), tmp_path, Reports())
    assert_only_the_file(tmp_path)
    assert server.requests == [None, "bytes=100000-", "bytes=150000-"]


def test_interrupted_process_goes_on_where_it_stopped(server, tmp_path):
    (tmp_path / "set.tgz.part").write_bytes(CONTENTS[:77_000])
    reports = Reports()
    fetch(remote(server, md5=MD5), tmp_path, reports)
    assert_only_the_file(tmp_path)
    assert server.requests == ["bytes=77000-"]
    assert reports.seen[0] == ("set.tgz", 77_000, len(CONTENTS))


def test_server_that_cannot_continue_sends_everything(server, tmp_path):
    server.ranges = False
    (tmp_path / "set.tgz.part").write_bytes(CONTENTS[:77_000])
    fetch(remote(server, md5=MD5), tmp_path, Reports())
    assert_only_the_file(tmp_path)


def test_part_that_is_complete_already(server, tmp_path):
    (tmp_path / "set.tgz.part").write_bytes(CONTENTS)
    fetch(remote(server, md5=MD5), tmp_path, Reports())
    assert_only_the_file(tmp_path)


def test_part_of_something_else_is_given_up(server, tmp_path):
    (tmp_path / "set.tgz.part").write_bytes(b"?" * 5_000)
    fetch(remote(server, md5=MD5), tmp_path, Reports())
    assert_only_the_file(tmp_path)
    assert server.requests == ["bytes=5000-", None]


def test_server_that_gives_no_length(server, tmp_path):
    server.states_length = False
    server.stop_after = [100_000]
    with pytest.raises(TransferError, match=r"what came is not set\.tgz: its md5 is \w+ instead of"):
        fetch(remote(server, md5=MD5), tmp_path, Reports())
    assert list(tmp_path.iterdir()) == []
    fetch(remote(server, md5=MD5), tmp_path, Reports())
    assert_only_the_file(tmp_path)


def test_server_that_never_gets_to_the_end(server, tmp_path):
    server.stop_after = [1_000] * 20
    with pytest.raises(TransferError, match=r"broke off after 5,000 of 256,000 bytes"):
        fetch(remote(server, md5=MD5), tmp_path, Reports())
    assert (tmp_path / "set.tgz.part").read_bytes() == CONTENTS[:5_000]  # for the next try


def test_next_source_after_a_dead_one(server, tmp_path):
    fetch(remote(server, "/gone", "/set", md5=MD5), tmp_path, Reports())
    assert_only_the_file(tmp_path)


def test_all_sources_are_named_with_their_reasons(server, tmp_path):
    file = RemoteFile("set.tgz", (f"{server.address}/gone", "http://127.0.0.1:1/set"), md5=MD5)
    with pytest.raises(TransferError, match=r"/gone: HTTP 404 Not Found; http://127\.0\.0\.1:1/set: .*refused"):
        fetch(file, tmp_path, Reports())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("facts", "reason"),
    [({"md5": MD5}, "its md5 is"), ({"size": len(CONTENTS)}, "it has 9 bytes instead of 256,000")],
)
def test_wrong_contents_are_thrown_away(server, tmp_path, facts, reason):
    server.contents = b"not it :("
    with pytest.raises(TransferError, match=rf"what came is not set\.tgz: {reason}"):
        fetch(remote(server, **facts), tmp_path, Reports())
    assert list(tmp_path.iterdir()) == []


def test_file_that_is_there_is_checked_and_kept(server, tmp_path):
    (tmp_path / "set.tgz").write_bytes(CONTENTS)
    fetch(remote(server, md5=MD5), tmp_path, Reports())
    assert server.requests == []
    (tmp_path / "set.tgz").write_bytes(b"mine")
    with pytest.raises(UserError, match=r"set\.tgz is not the published set\.tgz: its md5 is .*remove it"):
        fetch(remote(server, md5=MD5), tmp_path, Reports())
    assert (tmp_path / "set.tgz").read_bytes() == b"mine"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, which is a disk without room")
def test_full_disk(server, tmp_path):
    (tmp_path / "set.tgz.part").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"set\.tgz\.part cannot be written \(No space left on device\): make room"):
        fetch(remote(server, md5=MD5), tmp_path, Reports())
