"""Where data sets are: an explicit folder, the environment's, or the one that ``slimbayes data get`` fills."""

import os
from pathlib import Path

__all__ = ["MissingData", "data_folder", "find_file"]


class MissingData(FileNotFoundError):  # noqa: N818
    """A data set is not there; says where to get it and how."""


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder that holds the data sets.

    Args:
        folder: None for ``$SLIMBAYES_DATA`` if that is set, else ``~/.cache/slimbayes/data``.

    Example:
        >>> data_folder("somewhere").name
        'somewhere'
    """
    if folder is not None:
        return Path(folder).expanduser()
    return Path(os.environ.get("SLIMBAYES_DATA") or "~/.cache/slimbayes/data").expanduser()


def find_file(folder: Path, path: str) -> Path:
    """Return a file that the user named: from the working folder or below the data folder.

    Example:
        >>> find_file(Path("no-such-folder"), "my.npz")
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: Found no file my.npz, neither in the working folder (...) nor in ...
    """
    given = Path(path).expanduser()
    for file in (given, folder / given):
        if file.is_file():
            return file
    places = "" if given.is_absolute() else f", neither in the working folder ({Path.cwd()}) nor in {folder}"
    raise MissingData(
        f"Found no file {path}{places}. Check the option `path`, or name the folder by --data-dir or SLIMBAYES_DATA."
    )
