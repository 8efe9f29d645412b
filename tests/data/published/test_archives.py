import io
import stat
import tarfile
import zipfile

import pytest

from ccp_dml.data.published.archives import scratch_folder, unpack
from ccp_dml.errors import UserError


def member(name, kind=tarfile.REGTYPE, target="", contents=b""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(contents)
    return info, io.BytesIO(contents)


def write_tar(path, *members, mode="w:gz"):
    with tarfile.open(path, mode) as tar:
        for info, contents in members:
            tar.addfile(info, contents)
    return path


def write_zip(path, *members, kind=stat.S_IFREG):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, contents in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = (kind | 0o644) << 16
            packed.writestr(info, contents)
    return path


@pytest.mark.parametrize(("name", "mode"), [("a.tgz", "w:gz"), ("a.tar", "w"), ("a.bin", "w:xz")])
def test_tar(tmp_path, name, mode):
    files = [member("set/a/1.txt", contents=b"one"), member("set/2.txt", contents=b"two")]
    inner = member("set/link", tarfile.SYMTYPE, "a/1.txt")
    unpack(write_tar(tmp_path / name, *files, inner, mode=mode), tmp_path / "out")
    assert (tmp_path / "out/set/a/1.txt").read_bytes() == (tmp_path / "out/set/link").read_bytes() == b"one"
    assert (tmp_path / "out/set/2.txt").read_bytes() == b"two"


def test_zip(tmp_path):
    unpack(write_zip(tmp_path / "a.zip", ("set/a/1.txt", b"one"), ("set/2.txt", b"two")), tmp_path / "out")
    assert (tmp_path / "out/set/a/1.txt").read_bytes() == b"one"
    assert (tmp_path / "out/set/2.txt").read_bytes() == b"two"


@pytest.mark.parametrize(
    "bad",
    [
        member("../escaped.txt", contents=b"x"),
        member("set/../../escaped.txt", contents=b"x"),
        member("/tmp/escaped.txt", contents=b"x"),
        member("set/link", tarfile.SYMTYPE, "../../outside"),
        member("set/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("set/link", tarfile.LNKTYPE, "../outside"),
        member("set/pipe", tarfile.FIFOTYPE),
        member("set/disk", tarfile.BLKTYPE),
    ],
    ids=lambda value: f"{value[0].name} {value[0].linkname}",
)
def test_tar_that_tries_to_escape(tmp_path, bad):
    (tmp_path / "outside").write_text("untouched")
    archive = write_tar(tmp_path / "evil.tgz", member("set/1.txt", contents=b"one"), bad)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=rf"evil\.tgz is not safe: .*{bad[0].name.rpartition('/')[2]}"):
        unpack(archive, tmp_path / "deep" / "out")
    assert sorted(path for path in tmp_path.iterdir() if path.name != "deep") == before
    assert [path.name for path in (tmp_path / "deep").rglob("*") if path.is_file()] == ["1.txt"]


def test_tar_that_writes_through_a_link(tmp_path):
    """Each link alone stays inside, but the second stands on the first."""
    archive = write_tar(
        tmp_path / "evil.tar",
        member("a", tarfile.DIRTYPE),
        member("a/up", tarfile.SYMTYPE, "../a/.."),
        member("a/up/../escaped.txt", contents=b"x"),
        mode="w",
    )
    with pytest.raises(UserError, match=r"evil\.tar is not safe: .*outside the destination"):
        unpack(archive, tmp_path / "deep" / "out")
    assert list(tmp_path.rglob("escaped.txt")) == []


@pytest.mark.parametrize("name", ["../escaped.txt", "set/../../escaped.txt", "/tmp/escaped.txt", "..\\escaped.txt"])
def test_zip_that_tries_to_escape(tmp_path, name):
    archive = write_zip(tmp_path / "evil.zip", ("set/1.txt", b"one"), (name, b"x"))
    with pytest.raises(UserError, match=r"evil\.zip is not safe: .* would leave the folder"):
        unpack(archive, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []  # names are checked before anything is written


def test_zip_with_a_link(tmp_path):
    archive = write_zip(tmp_path / "evil.zip", ("set/link", b"/etc/passwd"), kind=stat.S_IFLNK)
    with pytest.raises(UserError, match=r"'set/link' is a link"):
        unpack(archive, tmp_path / "out")


def test_encrypted_zip(tmp_path):
    archive = write_zip(tmp_path / "a.zip", ("1.txt", b"one"))
    contents = bytearray(archive.read_bytes())
    contents[6] |= 1  # flag bits of the member's own header ...
    contents[contents.index(b"PK\x01\x02") + 8] |= 1  # ... and of its entry in the directory
    archive.write_bytes(contents)
    with pytest.raises(UserError, match=r"a\.zip is encrypted: unpack it with its password"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "zip"])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_half_an_archive(tmp_path, mode, share):
    noise = bytes(range(256)) * 400
    if mode == "zip":
        archive = write_zip(tmp_path / "half", ("1.bin", noise), ("2.bin", noise))
    else:
        archive = write_tar(tmp_path / "half", member("1.bin", contents=noise), mode=mode)
    archive.write_bytes(archive.read_bytes()[: int(archive.stat().st_size * share)])
    with pytest.raises(UserError, match=r"half .*(cut off)"):
        unpack(archive, tmp_path / "out")


def test_zip_with_a_damaged_member(tmp_path):
    archive = write_zip(tmp_path / "a.zip", ("1.txt", b"one" * 1000))
    contents = bytearray(archive.read_bytes())
    contents[40] ^= 0xFF
    archive.write_bytes(contents)
    with pytest.raises(UserError, match=r"a\.zip is damaged or cut off"):
        unpack(archive, tmp_path / "out")


def test_no_archive(tmp_path):
    (tmp_path / "page.tgz").write_text("<html>404</html>")
    with pytest.raises(UserError, match="neither a tar nor a zip file"):
        unpack(tmp_path / "page.tgz", tmp_path / "out")


def test_scratch_folder_vanishes_with_what_earlier_ones_left(tmp_path):
    left = tmp_path / ".unpacking-killed"
    left.mkdir()
    (left / "half.jpg").touch()
    (tmp_path / "mine").mkdir()
    with scratch_folder(tmp_path) as scratch:
        assert not left.exists()
        (scratch / "file").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
