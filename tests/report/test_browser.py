"""The page in a real browser: curves are drawn and react, nothing is loaded, nothing from outside is executed."""

import os
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

from mnm.commands.report import Report, report
from report.made import HOSTILE, make_results, make_run

CHROMIUM = shutil.which("chromium")
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
LAPTOP, PHONE = {"width": 1366, "height": 800}, {"width": 380, "height": 800}
RETURNS = "#headline .plot"
HOSTILE_AGENT = f"<b>bold</b> {HOSTILE}</script><!--"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None and "CI" not in os.environ, reason="chromium is not installed"),
]


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM or "chromium", args=SWITCHES)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    for number, agent in enumerate(("sac", HOSTILE_AGENT)):
        for seed in (0, 1):
            make_run(folder / "runs" / f"{number}-{seed}", agent, seed)
    (folder / "runs" / "0-0").rename(folder / "runs" / HOSTILE)
    results = make_results(folder / "results")
    assert report(Report(results, (folder / "runs",), "sac", folder / "report.html")) == 0
    return (folder / "report.html").as_uri()


@pytest.fixture
def opened(browser, address):
    """Opens the page; afterwards the console must be clean, no dialog seen, and nothing but the file asked for."""
    complaints, contexts = [], []

    def open_page(viewport=LAPTOP, scheme="light"):
        contexts.append(browser.new_context(viewport=viewport, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", lambda request: note_request(request.url))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(address)
        return page

    def note_request(url):
        if url != address and not url.startswith(("data:", "blob:")):
            complaints.append(f"request: {url}")

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def seen(page, selector):
    """The first such plot, scrolled to and drawn."""
    plot = page.locator(selector).first
    plot.scroll_into_view_if_needed()
    plot.locator(".main-svg .scatterlayer .trace").first.wait_for(state="attached")
    return plot


def open_all(page):
    """Every run unfolded, every plot drawn."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    plots = page.locator(".plot")
    for number in range(plots.count()):
        plots.nth(number).scroll_into_view_if_needed()
        plots.nth(number).locator(".main-svg .trace").first.wait_for(state="attached")
    return plots


def hide_sac(plot):
    plot.locator(".legend .traces", has_text="SAC").locator(".legendtoggle").click()


def test_every_plot_is_drawn(opened):
    page = opened()
    plots = open_all(page)
    assert plots.count() == 1 + 1 + 4 * 4
    for number in range(plots.count()):
        assert plots.nth(number).get_attribute("aria-label")
        assert plots.nth(number).locator(".scatterlayer path.js-line").count() >= 1
    assert page.locator("img:not([alt])").count() == 0


def test_a_click_on_the_legend_hides_an_agent_with_its_seeds(opened):
    plot = seen(opened(), RETURNS)
    traces = plot.locator(".scatterlayer .trace")
    expect(traces).to_have_count(2 * 3)
    hide_sac(plot)
    expect(traces).to_have_count(3)


def test_names_are_shown_and_not_executed(opened):
    page = opened()
    assert page.locator("img[src='x'], img[onerror]").count() == 0
    assert page.get_by_text(HOSTILE, exact=True).first.is_visible()
    legend = seen(page, RETURNS).locator(".legend")
    assert HOSTILE_AGENT in legend.locator("text").all_text_contents()
    assert page.locator("img[src='x'], img[onerror]").count() == 0
    assert page.evaluate("document.scripts.length") == page.locator(".plot").count() + 2


def test_a_script_that_got_in_would_not_run(browser, address):
    """The second wall: the page's policy, with a script inserted as if escaping had failed."""
    page = browser.new_page()
    messages = []
    page.on("console", lambda message: messages.append(message.text))
    page.goto(address)
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"window.ran = 1\">')")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), { text: 'window.ran = 1' }))")
    page.wait_for_timeout(300)
    assert page.evaluate("window.ran") is None
    assert any("Content Security Policy" in message for message in messages)
    page.close()


def test_what_is_wider_than_a_phone_scrolls_in_its_own_room_and_shows_a_shadow(opened):
    page = opened(PHONE)
    table = page.locator("#runs .scroll").first
    assert table.evaluate("(one) => one.scrollWidth > one.clientWidth")
    assert "gradient" in table.evaluate("(one) => getComputedStyle(one).backgroundImage")


def test_a_link_to_a_claim_unfolds_the_table(opened):
    page = opened()
    claims = page.locator("#all-claims table")
    expect(claims).to_be_hidden()
    page.locator("#figures a", has_text="claims").first.click()
    expect(claims).to_be_visible()


def test_nothing_is_wider_than_a_phone(opened):
    page = opened(PHONE)
    open_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_plots_follow_from_light_to_dark_and_keep_what_is_hidden(opened):
    page = opened()
    plot = seen(page, RETURNS)
    hide_sac(plot)
    expect(plot.locator(".scatterlayer .trace")).to_have_count(3)

    def colours():
        return [
            page.evaluate("getComputedStyle(document.body).backgroundColor"),
            plot.locator(".xtick text").first.evaluate("(text) => getComputedStyle(text).fill"),
            plot.locator("path.js-line").last.evaluate("(line) => getComputedStyle(line).stroke"),
        ]

    light = colours()
    page.emulate_media(color_scheme="dark")
    expect(plot.locator(".xtick text").first).not_to_have_css("fill", light[1])
    assert all(one != other for one, other in zip(light, colours(), strict=True))
    expect(plot.locator(".scatterlayer .trace")).to_have_count(3)


def test_a_link_to_a_run_unfolds_it(opened):
    page = opened()
    unfolded = page.locator("details.run[open]")
    expect(unfolded).to_have_count(1)
    page.locator("#runs table a").last.click()
    expect(unfolded).to_have_count(2)


def test_a_plot_can_be_saved_as_a_picture(opened):
    page = opened()
    seen(page, RETURNS)
    saved = page.evaluate(f"Plotly.toImage(document.querySelector('{RETURNS}'), {{ format: 'png' }})")
    assert saved.startswith("data:image/png;base64,")
