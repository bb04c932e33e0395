"""Downloads from a real HTTP server, with its faults."""

import hashlib
import logging
import sys

import pytest

from http_server import serving, tar_of
from slimbayes.data._download import Got, get
from slimbayes.data._transfer import DownloadError
from slimbayes.data.folders import MissingData
from slimbayes.data.sources import File, Source

CONTENT = bytes(range(256)) * 1000
CHECKSUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
PAGE = "https://example.org/about"


@pytest.fixture
def server():
    with serving({"/a.bin": CONTENT}) as server:
        yield server


@pytest.fixture
def fetch(server, tmp_path):
    """Gets one file, or the given ones, through the real function."""

    def fetch(*files, checksum=CHECKSUM, progress=None, tries=3, **options):
        files = files or (File("set/a.bin", f"{server.url}/a.bin", checksum),)
        sources = {"toy": Source(PAGE, "free", files, **options)}
        return get("toy", tmp_path, progress, sources=sources, tries=tries, pause=0.0)

    return fetch


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_verified_and_not_fetched_again(server, fetch, tmp_path):
    target, seen = tmp_path / "set" / "a.bin", []
    assert fetch(progress=lambda *args: seen.append(args)) == [Got(target, downloaded=True, verified=True)]
    assert target.read_bytes() == CONTENT
    assert names(target.parent) == ["a.bin"]
    assert seen[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    assert fetch() == [Got(target, downloaded=False, verified=True)]
    assert server.requests == [("/a.bin", None)]


def test_md5_is_understood(fetch):
    assert fetch(checksum="md5:" + hashlib.md5(CONTENT).hexdigest())[0].verified


def test_a_file_without_checksum_is_not_called_verified(server, fetch):
    assert fetch(checksum=None)[0][1:] == (True, False)
    assert fetch(checksum=None)[0][1:] == (False, False)
    assert len(server.requests) == 1


def test_only_the_missing_files_of_a_set_are_fetched(server, fetch, tmp_path):
    server.files["/b.bin"] = CONTENT
    files = [File(f"set/{name}.bin", f"{server.url}/{name}.bin", CHECKSUM) for name in "ab"]
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin").write_bytes(CONTENT)
    assert [got.downloaded for got in fetch(*files)] == [False, True]
    assert server.requests == [("/b.bin", None)]


def test_a_wrong_file_that_is_there_is_replaced(fetch, tmp_path):
    target = tmp_path / "set" / "a.bin"
    target.parent.mkdir()
    target.write_bytes(CONTENT[:-1])
    assert fetch()[0].downloaded
    assert target.read_bytes() == CONTENT


def test_a_cut_download_goes_on_in_the_same_run(server, fetch, tmp_path):
    server.faults = [("cut", 70_000), ("cut", 100_000)]
    fetch()
    assert (tmp_path / "set" / "a.bin").read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests] == [None, "bytes=70000-", "bytes=170000-"]


def test_a_cut_download_goes_on_in_the_next_run(server, fetch, tmp_path):
    server.faults = [("cut", 100_000)]
    with pytest.raises(
        DownloadError, match=r"cut after 100000 of 256000.*The 100000 bytes .*a\.bin\.part: run it again.*about"
    ) as error:
        fetch(tries=1)
    assert f"{server.url}/a.bin" in str(error.value)
    assert names(tmp_path / "set") == ["a.bin.part"]
    assert (tmp_path / "set" / "a.bin.part").read_bytes() == CONTENT[:100_000]
    assert fetch()[0].downloaded
    assert (tmp_path / "set" / "a.bin").read_bytes() == CONTENT
    assert names(tmp_path / "set") == ["a.bin"]
    assert server.requests[-1] == ("/a.bin", "bytes=100000-")


@pytest.mark.parametrize("fault", ["no ranges", "no length", "wrong range"])
def test_a_server_without_ranges_sends_all_again(server, fetch, tmp_path, fault):
    server.faults = [("cut", 100_000), fault]
    fetch()
    assert (tmp_path / "set" / "a.bin").read_bytes() == CONTENT


def test_a_partial_file_that_is_whole_is_only_put_in_place(server, fetch, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin.part").write_bytes(CONTENT)
    fetch()
    assert (tmp_path / "set" / "a.bin").read_bytes() == CONTENT
    assert server.requests == [("/a.bin", f"bytes={len(CONTENT)}-")]


def test_a_partial_file_that_is_too_long_is_started_anew(server, fetch, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin.part").write_bytes(CONTENT + b"more")
    fetch()
    assert (tmp_path / "set" / "a.bin").read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests] == [f"bytes={len(CONTENT) + 4}-", None]


def test_without_a_checksum_versions_are_never_mixed(server, fetch, tmp_path):
    server.faults = [("cut", 100_000)]
    with pytest.raises(DownloadError, match="cut after 100000 of 256000") as error:
        fetch(checksum=None, tries=1)
    assert "are kept" not in str(error.value)
    server.files["/a.bin"] = CONTENT[::-1]
    fetch(checksum=None)
    assert (tmp_path / "set" / "a.bin").read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("before", [None, b"an older file"])
def test_a_wrong_checksum_leaves_no_file_and_names_both_sums(server, fetch, tmp_path, before):
    server.files["/a.bin"] = b"something else"
    target = tmp_path / "set" / "a.bin"
    target.parent.mkdir()
    if before:
        target.write_bytes(before)
    with pytest.raises(DownloadError) as error:
        fetch()
    for part in (CHECKSUM, hashlib.sha256(b"something else").hexdigest(), f"{server.url}/a.bin", PAGE):
        assert part in str(error.value)
    assert (target.read_bytes() if target.exists() else None) == before
    assert names(target.parent) == (["a.bin"] if before else [])
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [403, 404])
def test_a_missing_file_names_its_address_and_page_and_is_not_tried_again(server, fetch, tmp_path, status):
    server.faults = [status]
    with pytest.raises(DownloadError, match=rf"/a\.bin answered {status}.*look at {PAGE}"):
        fetch()
    assert names(tmp_path / "set") == []
    assert len(server.requests) == 1


def test_a_passing_fault_of_the_server_is_tried_again(server, fetch):
    server.faults = [503, 429]
    assert fetch()[0].verified
    server.faults = [500] * 3
    with pytest.raises(DownloadError, match=r"the server answered 500 .*\(tries: 3\)"):
        fetch(File("b.bin", f"{server.url}/a.bin", CHECKSUM))


def test_a_server_that_is_not_there(fetch, server):
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:1/a.bin.*\(tries: 2\).*about"):
        fetch(File("a.bin", "http://127.0.0.1:1/a.bin", CHECKSUM), tries=2)


def test_a_disk_that_is_too_small_is_told_before_the_first_byte(server, fetch, tmp_path):
    server.faults = ["huge"]
    with pytest.raises(OSError, match=r"needs 1000000000000000000 bytes, but only \d+ are free"):
        fetch()
    assert names(tmp_path / "set") == []


@pytest.mark.parametrize("compression", ["gz", ""])
def test_a_folder_of_an_archive_is_unpacked(server, fetch, tmp_path, compression):
    packed = tar_of({"top/in/1.txt": b"one", "top/in/sub/2.txt": b"two", "top/other": b"not wanted"}, compression)
    server.files["/set.tar"] = packed
    file = File("sets/b", f"{server.url}/set.tar", "sha256:" + hashlib.sha256(packed).hexdigest(), unpack="top/in")
    assert fetch(file) == [Got(tmp_path / "sets" / "b", downloaded=True, verified=True)]
    assert (tmp_path / "sets" / "b" / "sub" / "2.txt").read_bytes() == b"two"
    assert names(tmp_path / "sets") == ["b"]
    assert names(tmp_path / "sets" / "b") == ["1.txt", "sub"]
    assert fetch(file) == [Got(tmp_path / "sets" / "b", downloaded=False, verified=False)]
    assert len(server.requests) == 1


def test_an_empty_folder_is_not_taken_for_the_set(server, fetch, tmp_path):
    server.files["/set.tar"] = tar_of({"in/1.txt": b"one"})
    (tmp_path / "b").mkdir()
    assert fetch(File("b", f"{server.url}/set.tar", unpack="in"))[0].downloaded
    assert names(tmp_path / "b") == ["1.txt"]


@pytest.mark.parametrize(
    ("packed", "fault"),
    [
        (tar_of({"../outside.txt": b"x", "in/1.txt": b"y"}), "outside"),
        (tar_of({"elsewhere/1.txt": b"y"}), "no folder in"),
        (tar_of({"in/1.txt": CONTENT})[:-100], "end-of-stream|end of|truncated"),
        (b"<html>log in first</html>", "could not be opened"),
    ],
    ids=["outside", "elsewhere", "cut off", "a page"],  # the bytes have the time in them, which differs between workers
)
def test_an_archive_that_cannot_be_unpacked_leaves_nothing(server, fetch, tmp_path, packed, fault):
    server.files["/set.tar"] = packed
    with pytest.raises(DownloadError, match=rf"(?s)cannot be unpacked, and has been removed: .*({fault}).*about"):
        fetch(File("sub/b", f"{server.url}/set.tar", unpack="in"))
    assert names(tmp_path / "sub") == []
    assert names(tmp_path) == ["sub"]


def test_a_set_in_another_layout_is_left_alone(server, fetch, tmp_path):
    (tmp_path / "unpacked").mkdir()
    for name in ("1.bin", "2.bin"):
        (tmp_path / "unpacked" / name).write_bytes(b"x")
    assert fetch(also=(("unpacked/1.bin", "unpacked/2.bin"),)) == [
        Got(tmp_path / "unpacked", downloaded=False, verified=False)
    ]
    assert not server.requests


def test_sets_that_need_a_registration_say_what_to_do(tmp_path):
    with pytest.raises(MissingData, match=r"imagenet cannot .* register.*ILSVRC2012.*image-net\.org"):
        get("imagenet", tmp_path)


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="`name`.*'cifar_10'.*Did you mean 'cifar10'"):
        get("cifar_10", tmp_path)
    with pytest.raises(ValueError, match="`tries`"):
        get("cifar10", tmp_path, tries=0)


def test_the_folder_is_that_of_the_environment(server, tmp_path, monkeypatch):
    monkeypatch.setenv("SLIMBAYES_DATA", str(tmp_path / "here"))
    sources = {"toy": Source(PAGE, "free", (File("a.bin", f"{server.url}/a.bin", CHECKSUM),))}
    assert get("toy", sources=sources)[0].path == tmp_path / "here" / "a.bin"


def test_nothing_is_logged_and_the_logger_is_left_as_it_was(fetch, caplog, capsys):
    level = logging.getLogger("pooch").level
    fetch()
    assert (caplog.text, *capsys.readouterr()) == ("", "", "")
    assert logging.getLogger("pooch").level == level


def test_without_pooch_the_extra_is_named(server, fetch, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r'pip install "slimbayes\[train\]"'):
        fetch()
