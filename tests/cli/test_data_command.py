"""The command ``slimbayes data``."""

import hashlib
import io
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from http_server import serving
from slimbayes.cli.data import _Bar, data_app
from slimbayes.data.registry import SETS
from slimbayes.data.sources import SOURCES, File, Source

CONTENT = b"some data"


def invoke(*arguments):
    return CliRunner().invoke(data_app, list(map(str, arguments)))


@pytest.fixture
def server(monkeypatch):
    """Serves the only two files of the set ``toy``, one of them without a known checksum."""
    with serving({"/a": CONTENT, "/b": CONTENT}) as server:
        checksum = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
        files = (File("toy/a", f"{server.url}/a", checksum, 9), File("toy/b", f"{server.url}/b"))
        monkeypatch.setitem(SOURCES, "toy", Source("https://example.org", "free for all", files, title="a toy"))
        yield server


def test_list_shows_every_set(tmp_path):
    outcome = invoke("list", "--data-dir", tmp_path)
    assert outcome.exit_code == 0
    assert f"Data folder: {tmp_path}" in outcome.stdout
    for name in SETS | SOURCES:
        assert f"\n{name} " in outcome.stdout
    assert "slimbayes data get cifar10 (170 MB)" in outcome.stdout
    assert "https://physionet.org/content/mimiciii" in outcome.stdout


def test_list_as_json(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").touch()
    listed = json.loads(invoke("list", "--json", "--data-dir", tmp_path).stdout)
    assert listed["folder"] == str(tmp_path)
    sets = {row["name"]: row for row in listed["sets"]}
    assert sets.keys() == SETS.keys() | SOURCES.keys()
    assert sets["cifar10"]["found"] is True
    assert sets["cifar10"]["path"] == str(tmp_path / "cifar-10-binary.tar.gz")
    assert (sets["imdb"]["found"], sets["imdb"]["path"], sets["imdb"]["bytes"]) == (False, None, 84125825)
    assert sets["digits"]["found"] is None
    assert all(row["title"] for row in listed["sets"])


def test_get_downloads_then_finds(server, tmp_path):
    outcome = invoke("get", "toy", "--data-dir", tmp_path)
    assert outcome.exit_code == 0
    assert outcome.stdout.splitlines() == [
        f"{tmp_path / 'toy' / 'a'}: downloaded, verified",
        f"{tmp_path / 'toy' / 'b'}: downloaded, not verified: no checksum of it is known",
    ]
    assert outcome.stderr == "toy: free for all; https://example.org\n"
    assert (tmp_path / "toy" / "a").read_bytes() == CONTENT
    again = invoke("get", "toy", "--data-dir", tmp_path)
    assert again.stdout.splitlines() == [
        f"{tmp_path / 'toy' / 'a'}: already there, verified",
        f"{tmp_path / 'toy' / 'b'}: already there, not verified",
    ]
    assert len(server.requests) == 2
    assert json.loads(invoke("list", "--json", "--data-dir", tmp_path).stdout)["sets"][-1]["found"] is True


def test_get_reports_a_wrong_checksum_and_fails(server, tmp_path):
    server.files["/a"] = b"other data"
    outcome = invoke("get", "toy", "--data-dir", tmp_path)
    assert outcome.exit_code == 2
    assert "slimbayes data get:" in outcome.stderr
    assert hashlib.sha256(b"other data").hexdigest() in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert list((tmp_path / "toy").iterdir()) == []


def test_get_of_a_missing_file_fails(server, tmp_path):
    del server.files["/a"]
    outcome = invoke("get", "toy", "--data-dir", tmp_path)
    assert outcome.exit_code == 2
    assert f"{server.url}/a answered 404" in outcome.stderr
    assert "https://example.org" in outcome.stderr


def test_get_checks_all_names_first(server, tmp_path):
    outcome = invoke("get", "toy", "mnits", "--data-dir", tmp_path)
    assert outcome.exit_code == 2
    assert "Did you mean 'mnist'?" in outcome.stderr
    assert not server.requests


@pytest.mark.parametrize(
    ("name", "said"),
    [("mimic3", "become a credentialed user"), ("digits", "needs no download"), ("table", "needs no download")],
)
def test_get_of_what_cannot_be_fetched(tmp_path, name, said):
    outcome = invoke("get", name, "--data-dir", tmp_path)
    assert outcome.exit_code == 2
    assert said in outcome.stderr


@pytest.mark.parametrize("arguments", [(), ("--data-dir", "there")])
def test_where(monkeypatch, arguments):
    monkeypatch.setenv("SLIMBAYES_DATA", "here")
    assert invoke("where", *arguments).stdout == ("there\n" if arguments else "here\n")


@pytest.mark.parametrize("command", ["list", "get", "where"])
def test_help_gives_an_example(command):
    outcome = invoke(command, "--help")
    assert outcome.exit_code == 0
    assert "Example: " in outcome.stdout


def test_downloads_need_no_torch():
    code = "import sys, slimbayes.cli.data, slimbayes.data._download; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_progress_bar_is_for_terminals_only(monkeypatch):
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        with _Bar() as bar:
            bar("a.bin", 500, 2000)
            bar("b.bin", 2000, 2000)
        assert bool(stream.getvalue()) == shown
        if shown:
            assert "a.bin:  25%" in stream.getvalue()
            assert "b.bin: 100%" in stream.getvalue()
