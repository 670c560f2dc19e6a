"""A real JupyterLab on a copy of the course, and a browser looking at it."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

CHROMIUM = os.environ.get("MINIPD_CHROMIUM", "/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
# No news from the network, and every cell in the page, so that all of it can be examined.
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
PAGE_LIMIT_MS = 300_000  # a page that is not there by then never will be
READY = """async () => {
    const app = window.jupyterapp; await app.restored;
    const panel = app.shell.currentWidget;
    await panel.context.ready; await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
}"""
RUN_ALL = "() => window.jupyterapp.commands.execute('notebook:run-all-cells')"


def missing():
    """Why a browser test cannot run here, or None."""
    axe = os.environ.get("MINIPD_AXE", "")
    if not Path(CHROMIUM).exists():
        return f"Chromium is not at {CHROMIUM}; install it or set MINIPD_CHROMIUM"
    if not axe or not Path(axe).is_file():
        return "set MINIPD_AXE to axe.min.js of the npm package axe-core"
    return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def lab(root, home):
    """JupyterLab's address, serving `root`; its settings and runtime files live in `home`."""
    folders = {
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
    }
    for folder in folders.values():
        folder.mkdir(parents=True)
    overrides = home / "config" / "labconfig"
    overrides.mkdir()
    (overrides / "default_setting_overrides.json").write_text(json.dumps(SETTINGS))
    url = f"http://127.0.0.1:{(port := free_port())}"
    options = [f"--port={port}", "--ip=127.0.0.1", "--no-browser", "--allow-root"]
    options += ["--IdentityProvider.token=", "--ServerApp.port_retries=0"]
    options += [f"--ServerApp.root_dir={root}", "--LabApp.expose_app_in_browser=True"]
    with (home / "server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            env={**os.environ, **{name: str(folder) for name, folder in folders.items()}},
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(lambda: urllib.request.urlopen(f"{url}/api/status", timeout=20), 300)
            yield url
        finally:
            server.terminate()
            server.wait(100)


def wait_until(action, limit_s):
    """Call `action` until it raises no OSError; its result."""
    end = time.monotonic() + limit_s
    while True:
        try:
            return action()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)


@contextlib.contextmanager
def browser_page():
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        expect.set_options(timeout=PAGE_LIMIT_MS)
        page = browser.new_context(viewport={"width": 1280, "height": 1000}).new_page()
        page.set_default_timeout(PAGE_LIMIT_MS)
        yield page
        browser.close()


def open_notebook(page, url, path):
    """Open a notebook and wait until its kernel really answers."""
    page.goto(f"{url}/lab/tree/{path}?reset", wait_until="domcontentloaded")
    page.wait_for_selector(".jp-Notebook")
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.evaluate(READY)


def axe_faults(page, selector):
    """Serious and critical faults (rule, HTML) that axe-core finds inside `selector`, and how many
    rules hold there."""
    page.add_script_tag(path=os.environ["MINIPD_AXE"])
    run = """async selector => {
        const found = await axe.run(selector);
        const faults = found.violations.filter(v => ['serious', 'critical'].includes(v.impact))
            .flatMap(v => v.nodes.map(n => [v.id, n.html.slice(0, 200)]));
        return [faults, found.passes.length];
    }"""
    return page.evaluate(run, selector)


def copy_course(source, target):
    for room in ("notebooks", "exercises"):
        shutil.copytree(source / room, target / room)
