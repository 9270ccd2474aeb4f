"""The committed site, built once, served under a sub-path, with no way out."""

import gzip
import http.server
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

from tests.site.harness import COUNT_DRAWS, PATIENCE_S, Site, browser_options, build

# Stands for the origin, which is another one for each process that serves the site.
SOMEWHERE = "http://127.0.0.1:1"


def build_once(folder: Path) -> Site:
    """The site, built by whichever process of the tests asks for it first."""
    whole = Site(folder / "built", SOMEWHERE)
    with FileLock(f"{whole.folder}.lock"):
        if not whole.folder.is_dir():
            unfinished = folder / "unfinished"
            result = build(folder / "config", unfinished, whole.url)
            assert result.returncode == 0, result.stdout + result.stderr
            unfinished.rename(whole.folder)
    return whole


def copy(whole: Site, served: Site) -> None:
    """The same site, as it is built for another origin."""
    shutil.copytree(whole.folder, served.folder)
    for file in served.folder.rglob("*"):
        if file.suffix in (".html", ".xml"):
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace(whole.url, served.url), encoding="utf-8")
    packed = served.folder / "sitemap.xml.gz"
    packed.write_bytes(gzip.compress(packed.with_suffix("").read_bytes()))
    for file in served.folder.rglob("*"):
        assert not file.is_file() or SOMEWHERE.encode() not in file.read_bytes(), file


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id):
    folder = tmp_path_factory.mktemp("site")
    served = folder / "served"
    handler = partial(Handler, directory=str(served))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    built = Site(served / "repo", f"http://127.0.0.1:{server.server_port}")
    base = tmp_path_factory.getbasetemp()
    copy(build_once(base if worker_id == "master" else base.parent), built)
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
