"""Downloads from the publishers: resumed, verified, and put in place only when they are complete."""

import gzip
import logging
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from slimbayes._checks import check_choice, check_count
from slimbayes.data._transfer import DownloadError, Progress, check_space, complete
from slimbayes.data.folders import MissingData, data_folder
from slimbayes.data.sources import SOURCES, File, Source, is_there


class Got(NamedTuple):
    """What became of one file.

    Attributes:
        path: Where it is.
        downloaded: False if it was already there.
        verified: Whether it has been compared with a known checksum.
    """

    path: Path
    downloaded: bool
    verified: bool


def get(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    *,
    sources: Mapping[str, Source] = SOURCES,
    tries: int = 5,
    pause: float = 1.0,
) -> list[Got]:
    """Download a data set from its publisher.

    What is already there and right is not downloaded again. A download that was cut goes on where it stopped. A
    file with the wrong checksum is replaced, once the right one is complete.

    Args:
        name: One of ``sources``.
        folder: The data folder; see ``data_folder``.
        progress: Called as bytes arrive.
        sources: By name; the publishers' unless you have a mirror.
        tries: Of each file, if the connection is cut.
        pause: Seconds before the second try; longer before each further one.

    Raises:
        DownloadError: The file is not there, is not the known one, or the connection was cut in every try.
        MissingData: The publisher asks for a registration.

    Example:
        >>> get("mimic3")
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: mimic3 cannot be downloaded without registration. ...
    """
    check_choice("name", name, sources)
    check_count("tries", tries)
    source, root = sources[name], data_folder(folder)
    if not source.files:
        raise MissingData(
            f"{name} cannot be downloaded without registration. Instead {source.steps} ({root}). See {source.page}."
        )
    found = source.find(root)
    if found is not None and not any(is_there(root / file.path) for file in source.files):
        return [Got(found, downloaded=False, verified=False)]
    return [_get(file, source.page, root / file.path, progress, tries, pause) for file in source.files]


def _get(file: File, page: str, target: Path, progress: Progress | None, tries: int, pause: float) -> Got:
    if file.unpack and is_there(target):
        return Got(target, downloaded=False, verified=False)
    pooch = _pooch()
    path = target.with_name(f"{target.name}.tar") if file.unpack else target
    downloaded = False

    def download(url: str, output: str, _: object) -> None:
        nonlocal downloaded
        Path(output).unlink()  # pooch's empty file, which would stay if the process were killed
        part = path.with_name(f"{path.name}.part")
        # Without a checksum nothing would tell if the parts of two versions were put together.
        complete(url, part, page, progress, resume=file.checksum is not None, tries=tries, pause=pause)
        os.replace(part, output)
        downloaded = True

    with _without_messages(pooch.get_logger()):
        try:
            pooch.retrieve(file.url, file.checksum, path.name, path.parent, downloader=download)
        except ValueError as error:
            raise DownloadError(f"{error} It came from {file.url}. Try again, or look at {page}.") from error
    if file.unpack:
        _unpack(path, file, page, target)
    return Got(target, downloaded, verified=file.checksum is not None)


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError('Downloads need pooch: pip install "slimbayes[train]"') from error
    return pooch


@contextmanager
def _without_messages(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _unpack(archive: Path, file: File, page: str, target: Path) -> None:
    """Turn a folder of the archive into ``target``, at once, and remove the archive."""
    unpacked = target.with_name(f".{target.name}.unpacking")
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        with tarfile.open(archive) as tar:
            check_space(archive.parent, sum(member.size for member in tar), f"Unpacking {archive}")
            tar.extractall(unpacked, filter="data")
        if not (unpacked / file.unpack).is_dir():
            raise tarfile.TarError(f"it has no folder {file.unpack}")
        os.replace(unpacked / file.unpack, target)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        archive.unlink()
        raise DownloadError(
            f"The archive from {file.url} cannot be unpacked, and has been removed: {error}. Try again, or look at "
            f"{page}."
        ) from error
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    archive.unlink()
