"""The committed site, built once, served under a sub-path, with no way out."""

import gzip
import http.server
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

from tests.site.harness import (
    COUNT_DRAWS,
    PATIENCE_S,
    ROOT,
    Site,
    browser_options,
    build,
)

# Stands for the origin, which is another one for each process that serves the site.
SOMEWHERE = "http://127.0.0.1:1/"


@pytest.fixture(scope="session")
def building(tmp_path_factory, worker_id):
    """Builds pages as they are in a folder, for an origin, into another folder.

    Whichever process of the tests asks first builds; all have copies.
    """
    base = tmp_path_factory.getbasetemp()
    base = base if worker_id == "master" else base.parent

    def built(served: Path, origin: str, pages=lambda folder: ROOT / "docs") -> None:
        """served: its name is the site's path. pages: makes their folder, in one that
        is given."""
        whole = base / "built" / served.name
        with FileLock(base / f"{served.name}.lock"):
            if not whole.is_dir():
                room = base / "making" / served.name
                docs, unfinished = pages(room), room / "site"
                address = f"{SOMEWHERE}{served.name}/"
                result = build(room / "config", unfinished, address, docs)
                assert result.returncode == 0, result.stdout + result.stderr
                whole.parent.mkdir(exist_ok=True)
                unfinished.rename(whole)
        copy(whole, served, origin)

    return built


def copy(whole: Path, served: Path, origin: str) -> None:
    """The same site, as it is built for another origin."""
    shutil.copytree(whole, served)
    for file in served.rglob("*"):
        if file.suffix in (".html", ".xml"):
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace(SOMEWHERE, f"{origin}/"), encoding="utf-8")
    packed = served / "sitemap.xml.gz"
    packed.write_bytes(gzip.compress(packed.with_suffix("").read_bytes()))
    for file in served.rglob("*"):
        assert not file.is_file() or SOMEWHERE.encode() not in file.read_bytes(), file


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def site(tmp_path_factory, building):
    folder = tmp_path_factory.mktemp("site")
    served = folder / "served"
    handler = partial(Handler, directory=str(served))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    built = Site(served / "repo", f"http://127.0.0.1:{server.server_port}")
    building(built.folder, built.origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield built
    server.shutdown()


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args):
    return {**browser_type_launch_args, **browser_options()}


@pytest.fixture
def problems():
    """What went wrong in the browser; who provokes something clears it afterwards."""
    found = []
    yield found
    assert not found, found


@pytest.fixture
def watch(site, problems):
    def watched(page):
        def failed(request):
            if request.failure != "net::ERR_ABORTED":
                problems.append(f"failed: {request.url} {request.failure}")

        def asked(request):
            if not request.url.startswith((site.origin, "data:", "blob:")):
                problems.append(f"outside: {request.url}")

        def answered(response):
            if response.status >= 400:
                problems.append(f"{response.status}: {response.url}")

        def logged(message):
            if message.type == "error":
                problems.append(message.text)

        page.on("console", logged)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("requestfailed", failed)
        page.on("request", asked)
        page.on("response", answered)
        page.set_default_timeout(1000 * PATIENCE_S)
        page.add_init_script(COUNT_DRAWS)
        return page

    return watched


@pytest.fixture
def page(context, watch):
    return watch(context.new_page())
