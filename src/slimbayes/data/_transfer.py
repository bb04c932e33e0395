"""One file over HTTP, going on where an earlier try was cut."""

import errno
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

#: Told the file's name, the bytes that are there and those of the whole file (None if the server does not say).
Progress = Callable[[str, int, int | None], None]

_CHUNK = 1 << 16
#: Seconds to wait for a connection, and for the next bytes.
_TIMEOUT = (20.0, 60.0)


class DownloadError(OSError):
    """A file could not be downloaded; says why and what to do."""


class _CutError(Exception):
    """The connection ended too early, or the server has a passing fault: worth another try."""


def complete(
    url: str, part: Path, page: str, progress: Progress | None = None, *, resume: bool, tries: int, pause: float
) -> None:
    """Fetch what the partial file lacks, in several tries.

    Args:
        url: The file's.
        part: Keeps what has come.
        page: Where a human can look for the file.
        progress: Called as bytes arrive.
        resume: False to start each try anew.
        tries: How many, if the connection is cut.
        pause: Seconds before the second try; longer before each further one.
    """
    import requests

    for done in range(tries):
        if not resume:
            part.unlink(missing_ok=True)
        try:
            return _go_on(url, part, page, progress)
        except (_CutError, requests.RequestException) as error:
            reason = error
            if done + 1 < tries:
                time.sleep(pause * (done + 1))
    kept = ""
    if resume and part.exists():
        kept = f" The {part.stat().st_size} bytes that came are kept in {part}: run it again to go on."
    raise DownloadError(f"Could not download {url}: {reason} (tries: {tries}).{kept} See also {page}.") from reason


def _go_on(url: str, part: Path, page: str, progress: Progress | None) -> None:
    """Fetch what the partial file lacks; start anew if the server cannot send a part of the file."""
    import requests
    import urllib3

    size = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"}  # the checksums are of the files as they are kept
    if size:
        headers["Range"] = f"bytes={size}-"
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        sent = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", response.headers.get("Content-Range", ""))
        if response.status_code == 416 and sent and sent[2] == str(size):
            return
        if response.status_code == 416 or (response.status_code == 206 and not (sent and sent[1] == str(size))):
            part.unlink()
            raise _CutError("the server could not go on with the partial file")
        if response.status_code >= 500 or response.status_code == 429:
            raise _CutError(f"the server answered {response.status_code} {response.reason}")
        if response.status_code not in (200, 206):
            raise DownloadError(
                f"{url} answered {response.status_code} {response.reason}. The publisher may have moved the file: "
                f"look at {page}."
            )
        if response.status_code == 200:
            size = 0
        length = response.headers.get("Content-Length")
        total = size + int(length) if length is not None else None
        check_space(part.parent, (total or size) - size, url)
        with part.open("ab" if size else "wb") as out:
            try:
                for chunk in response.raw.stream(_CHUNK, decode_content=False):
                    size += out.write(chunk)
                    if progress:
                        progress(part.stem, size, total)
            except urllib3.exceptions.HTTPError as error:
                raise _CutError(f"the connection was cut after {size} of {total or 'unknown'} bytes") from error
        if total is not None and size != total:  # as urllib3 1.x leaves it to others to notice
            raise _CutError(f"the connection was cut after {size} of {total} bytes")


def check_space(folder: Path, needed: int, what: str) -> None:
    """Raise unless so many bytes are free."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"{what} needs {needed} bytes, but only {free} are free", str(folder))
