"""The page in Chromium: every page and panel, keys, links, live curves; no error there, no request elsewhere."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inspected import CHROMIUM, chromium, make_run, served

from .test_security import EVIL

pytest.importorskip("playwright")

AXE = Path(__file__).parent / "vendored" / "axe.min.js"
pytestmark = [pytest.mark.integration, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]
PATIENCE = 240_000
SLOW_LOOKS = ((1280, "light"), (390, "dark"))


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    """A real server over the shared runs."""
    with served(runs) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that must stay without errors and ask nobody but its own server."""
    yield from opened_page(browser, 1280)


def opened_page(browser: Any, width: int, theme: str = "light") -> Iterator[Any]:
    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, accept_downloads=True, color_scheme=theme)
    made = context.new_page()
    made.set_default_timeout(PATIENCE)
    faults: list[str] = []
    own: list[str] = []

    def asked(request: Any) -> None:
        own[:] = own or [request.url.split("/")[2]]
        if not request.url.startswith(("about:", "data:", "blob:", "file:", f"http://{own[0]}/")):
            faults.append(f"asked {request.url}")

    def said(message: Any) -> None:
        if message.type in ("error", "warning"):
            faults.append(message.text)

    made.on("request", asked)
    made.on("console", said)
    made.on("pageerror", lambda error: faults.append(str(error)))
    made.faults = faults
    yield made
    context.close()
    assert faults == []


def pixels(page: Any, selector: str = "canvas.picture") -> int:
    """A number that changes with what a canvas shows."""
    return page.eval_on_selector(selector, """canvas => {
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', {willReadFrequently: true});
        copy.drawImage(canvas, 0, 0);
        const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
        let sum = 7;
        for (const byte of data) sum = (sum * 31 + byte) % 1000000007;
        return sum;
    }""")  # fmt: skip


def shown(page: Any, t: int) -> None:
    """Wait until the picture of step t is drawn."""
    page.wait_for_selector(f"canvas.picture[data-shown='{t}']", state="attached")


def until(page: Any, condition: str) -> None:
    """Wait for a condition; Playwright's own way needs eval, which the page forbids."""
    deadline = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(f"() => {condition}"):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(30)


def accessible(page: Any) -> None:
    """No serious finding of axe."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [
        f"{one['id']}: {[node['html'][:150] for node in one['nodes'][:3]]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_an_episode_step_by_step(page: Any, address: str, ids: dict[str, str]) -> None:
    run = ids["CartPole-v1-ppo"]
    page.goto(f"{address}?run={run}&checkpoint=step=1024&episode=3&mode=greedy&t=2")
    shown(page, 2)
    assert page.locator("tr.now td").first.inner_text() == "2"
    before = pixels(page)
    page.keyboard.press("ArrowRight")
    shown(page, 3)
    assert pixels(page) != before
    assert page.locator("tr.now td").first.inner_text() == "3"
    assert page.locator("[data-number=total]").inner_text() == "4"
    page.keyboard.press("ArrowLeft")
    shown(page, 2)
    assert pixels(page) == before
    last = int(page.locator("input.slider").get_attribute("max"))
    page.keyboard.press("End")
    shown(page, last)
    assert page.locator(".action").inner_text() == "the end"
    page.keyboard.press("Home")
    shown(page, 0)
    page.locator("input.slider").fill("5")
    shown(page, 5)
    until(page, "new URLSearchParams(location.search).get('t') === '5'")
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    until(page, f"document.querySelector('canvas.picture').dataset.shown === '{last}'")
    assert page.locator(".action").inner_text() == "the end"
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Export CSV").click()
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert len(lines) == last + 1
    assert lines[0].startswith("step,action,action_name,reward,total,value,to_go")
    accessible(page)


@pytest.mark.parametrize(
    ("name", "panels"),
    [
        (
            "CartPole-v1-ppo_gtrxl_masked",
            ["Attention over past steps", "Normalised, as the network reads it", "memory norm"],
        ),
        ("CartPole-v1-dqn", ["Q-values", "probabilities", "cart position"]),
        ("Pendulum-v1-sac", ["mean of the Gaussian", "deviation of the Gaussian", "angular velocity"]),
        ("MiniGrid-Empty-8x8-v0-ppo_rgb", ["what the policy sees, 3 channels", "probabilities"]),
        ("CartPole-v1-dreamer", ["What the world model thinks", "memory norm"]),
    ],
)
def test_every_kind_of_policy_has_its_panels(
    page: Any, address: str, ids: dict[str, str], name: str, panels: list[str]
) -> None:
    has_panels(page, address, ids[name], name, panels)


PONG = {
    "ppo": (["environment.num_envs=2"], ["what the policy sees, 4 channels", "RIGHTFIRE"]),
    "dreamer": (
        ["environment.num_envs=1", "algorithm.size=tiny", "buffers.replay.size=2000", "buffers.replay.storage=ram"],
        ["what the policy sees, 3 channels", "memory norm"],
    ),
}


@pytest.mark.parametrize("algorithm", PONG)
def test_pong_by_pixels(page: Any, tmp_path: Path, algorithm: str) -> None:
    """Runs of its own: the emulator would slow every other test down."""
    pytest.importorskip("ale_py")
    overrides, panels = PONG[algorithm]
    run = make_run(tmp_path / "runs", f"ALE/Pong-v5:{algorithm}", *overrides)
    with served(tmp_path / "runs") as address:
        has_panels(page, address, run.id, f"ALE-Pong-v5-{algorithm}", panels)
        page.goto("about:blank")


def has_panels(page: Any, address: str, run: str, name: str, panels: list[str]) -> None:
    """All of them, and what is seen inside."""
    page.goto(f"{address}?run={run}&checkpoint=last&episode=3&t=2&steps={9 if 'Pong' in name else 40}")
    shown(page, 2)
    for panel in [*panels, "value against return to go", "entropy"]:
        assert page.get_by_text(panel, exact=True).count() >= 1, panel
    page.get_by_role("button", name="Look inside at this step").click()
    page.wait_for_selector("[data-panel=inside] h3")
    assert "Occlusion" in page.locator("[data-panel=inside]").inner_text()
    if name in ("MiniGrid-Empty-8x8-v0-ppo_rgb", "ALE-Pong-v5-ppo"):
        for title in ("GradCAM", "Filters", "Activations", "What excites each channel most"):
            assert page.locator(f"[data-panel=inside] h3:has-text('{title}') + .frame img").count() >= 1, title
    if name.endswith("-dreamer"):
        page.get_by_role("button", name="Imagine from this step").click()
        page.wait_for_selector("[data-panel=dream] .uplot")
        assert "imagined" in page.locator("[data-panel=dream]").inner_text()
        assert (page.locator("[data-panel=dream] .strip img").count() > 3) == ("Pong" in name)


def test_jumps_lead_to_rewards(page: Any, address: str, ids: dict[str, str]) -> None:
    page.goto(f"{address}?run={ids['Pendulum-v1-sac']}&checkpoint=last&episode=3&steps=40")
    shown(page, 0)
    rewards = {}
    for key in ("b", "w", "n"):
        page.keyboard.press(key)
        rewards[key] = float(page.locator("[data-number=reward]").inner_text().replace("−", "-").replace(",", ""))
    assert rewards["b"] > rewards["w"]


def test_runs_are_filtered_selected_and_compared(page: Any, address: str, runs: Path) -> None:
    page.goto(address)
    page.wait_for_selector("svg.spark")
    assert page.locator("tbody tr").count() == sum(path.is_dir() and not path.is_symlink() for path in runs.iterdir())
    accessible(page)
    page.get_by_label("Conditions").fill("algorithm=ppo seed<3")
    until(page, "document.querySelectorAll('tbody tr').length === 2")
    page.get_by_label("Conditions").fill("nonsense>1")
    page.wait_for_selector("p.error")
    page.get_by_label("Conditions").fill("algorithm=ppo seed<3")
    until(page, "document.querySelectorAll('tbody tr').length === 2 && !document.querySelector('p.error')")
    for box in page.locator("tbody input").all():
        box.check()
    page.get_by_role("button", name="Curves").click()
    page.wait_for_selector("[data-metric='val/roll/ep_rew/mean'] .uplot")
    assert page.locator(".chart .title span.swatch").count() == 4
    page.get_by_label("Seeds as a band").check()
    page.wait_for_selector("text=2 seeds")
    page.get_by_label("Logarithmic").check()
    page.get_by_label("Axis", exact=True).select_option("seconds")
    until(page, "new URLSearchParams(location.search).get('axis') === 'seconds'")
    page.get_by_label("Metric", exact=True).select_option("train/loss/policy")
    page.get_by_role("button", name="Add chart").click()
    page.wait_for_selector("[data-metric='train/loss/policy'] .uplot")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Export CSV of train/loss/policy").click()
    assert Path(waiting.value.path()).read_text().startswith("seconds,")
    accessible(page)
    page.reload()
    page.wait_for_selector("[data-metric='train/loss/policy'] .uplot")  # the address holds the view


def test_a_point_leads_to_its_checkpoint(page: Any, address: str, ids: dict[str, str]) -> None:
    page.goto(f"{address}?run={ids['CartPole-v1-ppo']}")
    over = page.locator("[data-metric='train/roll/ep_rew/mean'] .u-over")
    over.wait_for()
    box = over.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 8, box["y"] + 20)
    page.mouse.click(box["x"] + box["width"] - 8, box["y"] + 20)
    link = page.locator("a.checkpoint")
    assert "step=1024" in link.inner_text()
    link.click()
    shown(page, 0)


def test_two_policies_side_by_side(page: Any, address: str, ids: dict[str, str]) -> None:
    page.goto(f"{address}?page=compare&run={ids['CartPole-v1-ppo']}&run={ids['CartPole-v1-dqn']}&episode=3")
    page.wait_for_selector("[data-side='1'] canvas[data-shown]", state="attached")
    apart = page.locator("p[data-apart]").get_attribute("data-apart")
    page.get_by_role("button", name="First difference").click()
    assert page.locator("[data-side='0'] .error").inner_text() == "Here they act differently for the first time."
    actions = page.locator(".action").all_inner_texts()
    assert actions[0] != actions[1]
    page.wait_for_selector(f"[data-side='0'] canvas[data-shown='{apart}']", state="attached")
    page.wait_for_selector(f"[data-side='1'] canvas[data-shown='{apart}']", state="attached")
    accessible(page)
    page.goto(f"{address}?page=compare&run={ids['CartPole-v1-ppo']}&checkpoint=step=512&checkpoint=step=1024")
    page.wait_for_selector("text=They act alike all the way.")  # the same weights


def test_config_report_and_videos(page: Any, address: str, ids: dict[str, str], runs: Path) -> None:
    from ludus.reports.report import write_report

    folder = runs / ids["CartPole-v1-dqn"]
    write_report(folder)
    try:
        page.goto(f"{address}?page=config&run={folder.name}&run={ids['CartPole-v1-ppo']}")
        frame = page.frame_locator("iframe").first
        frame.locator("h1, h2").first.wait_for()
        assert page.locator("[data-panel=differences] th", has_text="algorithm.gamma").count() == 1
        assert page.get_by_text("configs/environments/CartPole-v1.yaml").count() > 3
        assert "ludus play" in page.locator("[data-panel=report]").first.inner_text()
        page.wait_for_selector("text=Nothing unusual.")
        accessible(page)
    finally:
        for name in ("report.html", "report.md"):
            (folder / name).unlink()


@pytest.mark.parametrize(
    ("width", "theme"),
    [(1280, "dark"), (390, "light"), *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW_LOOKS)],
)
def test_every_page_fits_and_can_be_read(
    browser: Any, address: str, ids: dict[str, str], width: int, theme: str
) -> None:
    """Nothing has to be scrolled sideways, and axe has no serious finding."""
    run, pixels = ids["CartPole-v1-ppo"], ids["MiniGrid-Empty-8x8-v0-ppo_rgb"]
    for page in opened_page(browser, width, theme):
        for query, ready in (
            ("", "svg.spark"),
            (f"?run={run}", ".uplot"),
            (f"?run={pixels}&checkpoint=last&episode=3&steps=9", "canvas[data-shown]"),
            (f"?page=config&run={run}&run={pixels}", "table"),
            (f"?page=compare&run={run}&episode=3", "canvas[data-shown]"),
        ):
            page.goto(address + query)
            page.wait_for_selector(ready)
            assert page.evaluate("document.documentElement.dataset.theme") == theme
            if "episode" in query and "compare" not in query:
                page.get_by_role("button", name="Look inside at this step").click()
                page.wait_for_selector("[data-panel=inside] h3")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, query
            accessible(page)


def test_the_theme_can_be_changed(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("tbody tr")
    page.get_by_role("button", name="Dark or light").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    page.wait_for_selector("tbody tr")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_run_is_watched_while_it_trains(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", "CartPole-v1:dqn")
    run.set_status("running")
    with served(tmp_path / "runs") as address:
        for page in opened_page(browser, 1280):
            page.goto(f"{address}?run={run.id}&metric=train/roll/ep_rew/mean")
            page.wait_for_selector("[data-points='12']")
            row = {"epoch": 13, "env_steps": 1300, "updates": 50, "phase": "train", "seconds": 9.0}
            deadline = time.monotonic() + 30
            with (run.path / "metrics.jsonl").open("a") as file:  # until the page listens
                file.write(json.dumps(row | {"train/roll/ep_rew/mean": 200.0}) + "\n")
            while page.locator("[data-points='12']").count() and time.monotonic() < deadline:
                page.wait_for_timeout(200)
                (run.path / "status.json").touch()
            page.wait_for_selector("[data-points='13']")
            assert "running" in page.locator(f"[data-state='{run.id}']").inner_text()
            status = json.loads((run.path / "status.json").read_text())
            (run.path / "status.json").write_text(json.dumps(status | {"pid": 2**22 + 1}))  # as after kill -9
            page.wait_for_selector("text=killed")
            assert f"ludus resume {run.id}" in page.locator(f"[data-state='{run.id}']").inner_text()


def test_script_in_names_is_text(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", "CartPole-v1:dqn", steps=())
    (run.path / "tags.json").write_text(json.dumps({"tags": [EVIL]}))
    row = {"epoch": 1, "env_steps": 1, "updates": 1, "phase": EVIL, "seconds": 1.0, EVIL: 1.0}
    (run.path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    run.write("meta.json", run.meta() | {"spec": EVIL, "overrides": [EVIL], "name": EVIL})
    with served(tmp_path / "runs") as address:
        for page in opened_page(browser, 1280):
            page.on("dialog", lambda dialog, faults=page.faults: faults.append(dialog.message))
            for query, ready in (
                ("", "tbody tr"),
                (f"?run={run.id}", "[data-metric]"),
                (f"?page=config&run={run.id}", "table"),
            ):
                page.goto(address + query)
                page.wait_for_selector(ready)
                assert EVIL in page.locator("body").inner_text()
                assert page.locator("img, main script").count() == 0
            page.goto(f"{address}?page=episode&run={run.id}")
            page.wait_for_selector("text=This run has no checkpoint yet")


def test_empty_states_say_what_to_do(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with served(tmp_path / "runs") as address:
        for page in opened_page(browser, 1280):
            for query in ("", "?page=episode", "?page=compare"):
                page.goto(address + query)
                page.wait_for_selector("text=ludus train CartPole-v1:ppo")
            for query in ("?page=curves", "?page=config"):
                page.goto(address + query)
                page.wait_for_selector("text=No run is selected.")


def test_one_file_shows_an_episode_without_a_server(page: Any, runs: Path, ids: dict[str, str], tmp_path: Path) -> None:
    from ludus.inspector.single_page import write_page

    target = tmp_path / "episode.html"
    write_page(target, runs, ids["CartPole-v1-dqn"], [], checkpoint="last", seed=3, mode="greedy", steps=25)
    page.goto(target.as_uri())
    shown(page, 0)
    before = pixels(page)
    page.keyboard.press("End")
    until(page, "document.querySelector('canvas.picture').dataset.shown !== '0'")
    assert pixels(page) != before
    assert "Q-values" in page.locator("main").inner_text()
    accessible(page)
