"""The admin page in a browser, before a live deployment."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect

from common.ports import free_ports
from common.process import Child
from tests.browser.conftest import ADMIN, CLIENT, WITHIN, Deployment, Seen
from tests.integration.admin import until_engine
from tests.processes import descendants, kill

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
expect.set_options(timeout=WITHIN)


def card(page: Page, id_: str) -> Locator:
    return page.locator(f'[data-engine="{id_}"]')


async def test_the_topology_changes_when_an_engine_is_killed(
    page: Page, deployment: Deployment, tmp_path: Path
) -> None:
    """A process of its own, which was added while the gateways ran: killed, and started again."""
    (port,) = free_ports(1)
    id_ = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "engines.sim", "--port", str(port)]
    with Child("engine", command, log=tmp_path / "engine.log") as engine:
        body = {"url": f"http://{id_}", "role": "decode"}
        assert (await deployment.two.client.post("/admin/engines", json=body)).status_code == 201
        for one in (*deployment.engines.values(), id_):
            await expect(card(page, one).locator(".badge")).to_have_text("up")
        await expect(page.get_by_text("3 of 3 open")).to_be_visible()
        await expect(page.locator(".activity")).to_contain_text(f"{id_} added")
        kill(descendants(engine.pid))
        await expect(card(page, id_).locator(".badge")).to_have_text("down")
    await expect(card(page, id_).locator(".fault")).to_contain_text("cannot be reached")
    await expect(page.get_by_text("2 of 3 open")).to_be_visible()
    await expect(page.locator(".activity")).to_contain_text(f"{id_} down")
    with Child("engine", command, log=tmp_path / "engine.log"):
        await expect(card(page, id_).locator(".badge")).to_have_text("up")


async def test_traffic_is_drawn_between_the_engines_that_it_passes(page: Page, deployment: Deployment) -> None:
    await asyncio.gather(*(deployment.chat() for _ in range(4)))
    rows = page.locator("table tbody tr")
    await expect(rows.filter(has_text=deployment.engines["prefill"]).first).to_contain_text("prompts")
    await expect(rows.filter(has_text=deployment.engines["spare"]).first).to_contain_text("KV")
    await expect(page.locator(".graph svg path[data-tone=busy]")).to_have_count(3)


async def test_an_engine_is_drained_after_a_question_and_only_then(page: Page, deployment: Deployment) -> None:
    spare = deployment.engines["spare"]
    button = card(page, spare).get_by_role("button", name="Drain")
    await button.click()
    await expect(page.get_by_role("dialog", name=f"Drain {spare}?")).to_be_visible()
    await page.keyboard.press("Escape")
    await button.focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert not (await until_engine(deployment.two, spare, "it is there", up=True))["draining"], "no has the focus"
    await button.click()
    await page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    await expect(card(page, spare).locator(".badge")).to_have_text("draining")
    await until_engine(deployment.two, spare, "the other replica knows of it", draining=True)
    await card(page, spare).get_by_role("button", name="Undrain").click()
    await page.get_by_role("dialog").get_by_role("button", name="Undrain").click()
    await expect(card(page, spare).locator(".badge")).to_have_text("up")


async def test_an_engine_is_removed_and_added_again(page: Page, deployment: Deployment) -> None:
    spare = deployment.engines["spare"]
    await card(page, spare).get_by_role("button", name="Remove").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(card(page, spare)).to_have_count(0)
    await page.get_by_role("button", name="Add engine").click()
    dialog = page.get_by_role("dialog", name="Add an engine")
    await dialog.get_by_label("Base URL").fill(deployment.spare_url)
    await dialog.get_by_label("Role").select_option("decode")
    await dialog.get_by_role("button", name="Add").click()
    await expect(card(page, spare).locator(".badge")).to_have_text("up")


async def test_a_requests_timeline_is_followed_from_the_table(page: Page, deployment: Deployment) -> None:
    request_id = await deployment.chat(stream=True)
    other = await deployment.chat(model="nobody")
    await page.get_by_role("link", name="Requests", exact=True).first.click()
    row = page.locator(f'[data-request="{request_id}"]')
    await expect(row).to_contain_text("finished")
    await page.get_by_label("State").select_option("failed")
    await expect(row).to_have_count(0)
    await page.get_by_label("State").select_option("finished")
    await page.get_by_label("Engine").select_option(deployment.engines["prefill"])
    await row.get_by_role("link").click()
    await expect(page.get_by_role("heading", name=request_id)).to_be_visible()
    spans = page.locator(".waterfall li")
    await expect(spans).to_have_count(4)
    assert [await span.get_attribute("data-name") for span in await spans.all()] == [
        "queue",
        "prefill",
        "handoff",
        "decode",
    ]
    lefts = [await bar.evaluate("bar => bar.getBoundingClientRect().left") for bar in await page.locator(".bar").all()]
    assert lefts == sorted(lefts)
    await expect(page.get_by_role("cell", name="completed")).to_be_visible()
    assert other != request_id


async def test_what_comes_from_outside_stays_text(page: Page, deployment: Deployment) -> None:
    named = "<img src=x onerror=document.title='taken'><b>bold</b>"
    request_id = await deployment.chat(named=named)
    await page.get_by_role("link", name="Requests", exact=True).first.click()
    await expect(page.locator(f'[data-request="{request_id}"]')).to_contain_text(named)
    await page.locator(f'[data-request="{request_id}"]').get_by_role("link").click()
    await expect(page.get_by_text(named)).to_be_visible()
    assert await page.locator("main img, main b").count() == 0
    assert "taken" not in await page.title()


async def test_a_running_request_is_cancelled_from_its_page(page: Page, deployment: Deployment) -> None:
    """One that would not end by itself."""
    decoders = (deployment.one.decode, deployment.spare)
    for engine in decoders:
        engine.rule("hang_midway", on="decode", after=3)
    try:
        client = asyncio.create_task(deployment.chat(stream=True))
        await page.get_by_role("link", name="Requests", exact=True).first.click()
        await page.get_by_label("State").select_option("running")
        await page.locator("[data-request]").get_by_role("link").click()
        await expect(page.locator(".bar[data-running]")).to_have_count(1)
        await page.get_by_role("button", name="Cancel request").click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel it").click()
        await expect(page.locator(".head .badge")).to_have_text("cancelled")
        await expect(page.locator(".bar[data-running]")).to_have_count(0)
        await client
    finally:  # one of them was not asked
        for engine in decoders:
            engine.faults.clear()


async def test_the_key_is_kept_for_the_tab_and_nowhere_else(page: Page, deployment: Deployment, seen: Seen) -> None:
    await page.reload()
    await page.get_by_role("heading", name="Topology").wait_for()
    await page.get_by_role("link", name="Settings").click()
    await expect(page.get_by_role("row", name="DUET_ADMIN_KEY")).to_contain_text("set")
    stored: dict[str, Any] = await page.evaluate("({...localStorage})")
    assert "s3cret" not in str(stored)
    assert await page.context.cookies() == []
    assert "s3cret" not in await page.content()
    assert "s3cret" not in page.url
    await page.get_by_role("button", name="Forget key").click()
    await expect(page.get_by_label("Key")).to_be_visible()
    assert "s3cret" not in str(await page.evaluate("({...sessionStorage})"))
    for refused, why in (("nonsense", "not known here"), (CLIENT, "a client's key")):
        await page.get_by_label("Key").fill(refused)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text(why)
    asked = len([r for r in seen.asked if "/admin/topology" in r.url])
    await page.get_by_label("Key").fill(ADMIN)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    assert len([r for r in seen.asked if "/admin/topology" in r.url]) == asked, "nothing is asked without a good key"


async def test_an_answer_to_an_earlier_key_says_nothing_of_a_later_one(page: Page, deployment: Deployment) -> None:
    await page.get_by_role("button", name="Forget key").click()
    later, answered = asyncio.Event(), asyncio.Event()

    async def slowly(route: Route) -> None:
        reply = await route.fetch()
        if route.request.headers["authorization"].endswith(CLIENT):
            await later.wait()
            await route.fulfill(response=reply)
            answered.set()
        else:
            await route.fulfill(response=reply)

    await page.route("**/ui/access", slowly)
    for key in (CLIENT, ADMIN):
        await page.get_by_label("Key").fill(key)
        await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Topology")).to_be_visible()
    later.set()
    await answered.wait()
    await page.get_by_role("link", name="Settings").click()
    await expect(page.get_by_role("heading", name="Settings")).to_be_visible()


async def test_the_page_is_ours_alone(page: Page, deployment: Deployment) -> None:
    """No script but files of ours runs, whatever gets into the page."""
    reply = await deployment.one.client.get("/admin/ui")
    policy = dict(part.split(" ", 1) for part in reply.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert "<style" not in reply.text
    assert " style=" not in reply.text
    assert "<script>" not in reply.text
    assert reply.headers["x-content-type-options"] == "nosniff"
    again = await deployment.one.client.get("/admin/ui/main.js", headers={"if-none-match": "x"})
    assert again.headers["content-type"].startswith("text/javascript")
    same = await deployment.one.client.get("/admin/ui/main.js", headers={"if-none-match": again.headers["etag"]})
    assert same.status_code == 304
    for name in ("nope.js", "__init__.py", "..%2fsettings.py"):
        assert (await deployment.one.client.get(f"/admin/ui/{name}")).status_code == 404


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1360])
async def test_every_view_is_readable(
    browser: Browser, deployment: Deployment, seen: Seen, scheme: Any, width: int
) -> None:
    """Nothing is wider than the screen or than its place, and text stands out from its ground by WCAG's 4.5 to 1."""
    request_id = await deployment.chat(stream=True)
    for port, role in ((9, "talker"), (10, "code2wav")):  # nobody is there, and the page says so at some length
        body = {"url": f"http://127.0.0.1:{port}", "role": role}
        assert (await deployment.one.client.post("/admin/engines", json=body)).status_code == 201
    context = await browser.new_context(
        base_url=deployment.one.url, color_scheme=scheme, viewport={"width": width, "height": 844}
    )
    page = await context.new_page()
    page.set_default_timeout(WITHIN)
    seen.watch(page)
    await page.goto("/admin/ui")
    await page.get_by_label("Key").fill(ADMIN)
    await page.keyboard.press("Enter")
    for view, what in (
        ("topology", "[data-engine]"),
        ("requests", "[data-request]"),
        (f"requests/{request_id}", ".waterfall li"),
        ("settings", "tbody tr"),
    ):
        await page.evaluate("hash => { location.hash = hash; }", f"#/{view}")
        await page.locator(what).first.wait_for()
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, view
        assert await page.evaluate(CUT) == [], view
        assert await page.evaluate(FAINT) == [], view
    await context.close()


CUT = """() => [...document.querySelectorAll(".card, .stage, .panel:not(.scroll), .figures > div")]
  .filter((node) => node.scrollWidth > node.clientWidth || node.getBoundingClientRect().right > innerWidth)
  .map((node) => node.textContent.slice(0, 40))"""
FAINT = """() => {
  const parse = (text) => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
    const draw = canvas.getContext("2d");
    draw.fillStyle = text;
    draw.fillRect(0, 0, 1, 1);
    return [...draw.getImageData(0, 0, 1, 1).data];
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const light = ([r, g, b]) => {
    const part = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const faint = [];
  for (const node of document.querySelectorAll("main *, header *")) {
    const text = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!text || node.closest("svg, :disabled") || !node.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(`${node.className}: ${node.textContent.slice(0, 40)}`);
  }
  return faint;
}"""
