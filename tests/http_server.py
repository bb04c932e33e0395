"""A local HTTP server with the faults of real ones."""

import io
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(files):
    """Yield a server of these contents by path; ``faults`` are for its next requests, ``requests`` those it got."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.faults, server.requests = dict(files), [], []
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def tar_of(members, compression="gz"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Handler(BaseHTTPRequestHandler):
    """Serves ``server.files``; each request takes the next of ``server.faults``."""

    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.requests.append((self.path, wanted))
        fault = server.faults.pop(0) if server.faults else None
        if isinstance(fault, int) and fault >= 400:
            return self.send_error(fault)
        if self.path not in server.files:
            return self.send_error(404)
        content = server.files[self.path]
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and fault != "no ranges" else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_response(206 if start else 200)
        if start:
            first = 0 if fault == "wrong range" else start
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        if fault != "no length":
            self.send_header("Content-Length", str(10**18 if fault == "huge" else len(content) - start))
        self.end_headers()
        end = start + fault[1] if isinstance(fault, tuple) else None  # ("cut", bytes)
        self.wfile.write(content[start:end])
        return None

    def log_message(self, *_):
        pass
