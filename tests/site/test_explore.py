"""The crossover widget in a browser: the same arithmetic, its state, its readers."""

import base64
import hashlib
import json
import random
import re
from dataclasses import asdict, replace
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from generate.gpus import DATASHEETS
from generate.render.readings import readings
from generate.shapes import SPLIT_SHAPES
from kernels import plan
from tests.site.harness import arrive, axe, follow, until

PAGE = "explore/"
WIDGET = "section.explore[data-live]"
DEVICES = [sheet.device for sheet in DATASHEETS if sheet.device]
OPS = ("forward", "dx", "dw")


@pytest.fixture
def data(site) -> dict:
    """The widget's file, as the page names it."""
    file = re.search(r'data-explore="([^"]+)"', site.html(PAGE))[1]
    return json.loads((site.folder / file).read_text(encoding="utf-8"))


def open_widget(page, site, query="", address=PAGE):
    page.goto(site.url + address + query)
    widget = page.locator(WIDGET)
    expect(widget).to_have_count(1)
    return widget


def shown(widget, key):
    return widget.locator(f"[data-show={key}]").first


# Arithmetic


def vectors() -> list[tuple[str, list, object]]:
    """Function, arguments and result, as kernels.plan has them."""
    pick = random.Random(0)
    calls = []

    def add(name, function, *given):
        sent = [asdict(g) if hasattr(g, "__dataclass_fields__") else g for g in given]
        try:
            result = function(*given)
        except ValueError as error:
            result = {"error": str(error)}
        if isinstance(result, plan.Tile):
            result = asdict(result)
        calls.append((name, sent, result))

    shapes = [*SPLIT_SHAPES, (0, 64, 64), (64, 0, 64), (1, 1, 1), (2**20, 2**16, 2**16)]
    shapes += [
        (pick.randint(1, 2**17), pick.randint(1, 20000), pick.randint(1, 20000))
        for _ in range(60)
    ]
    devices = [
        *DEVICES,
        replace(DEVICES[0], capability="5.2", registers_per_program=32768),
        replace(DEVICES[0], warp_size=64, max_warps_per_sm=32),
        replace(DEVICES[0], shared_memory_per_program_bytes=4096),
        replace(DEVICES[0], shared_memory_per_program_bytes=64 * 1024),
    ]
    tiles = [plan.Tile(64, 128, 128, 8, 3), plan.Tile(32, 64, 256, 4, 2)]
    for op in OPS:
        for itemsize in (2, 4):
            for device in devices:
                add("chooseTile", plan.choose_tile, op, itemsize, device)
                for tile in tiles:
                    add(
                        "expectedResident",
                        plan.expected_resident,
                        op,
                        tile,
                        itemsize,
                        device,
                    )
            for tile in tiles:
                add("sharedMemoryBytes", plan.shared_memory_bytes, op, tile, itemsize)
        for shape in shapes:
            add("outputTiles", plan.output_tiles, op, list(shape), tiles[0])
            add("contractedBlocks", plan.contracted_blocks, op, list(shape), tiles[1])
    for _ in range(400):
        device = pick.choice(devices)
        registers, shared = pick.randint(0, 255), pick.randint(0, 240 * 1024)
        warps = pick.choice((1, 2, 4, 8, 16))
        add(
            "residentPrograms",
            plan.resident_programs,
            registers,
            shared,
            warps,
            device,
        )
        tiles_, blocks = pick.randint(0, 5000), pick.randint(0, 5000)
        sms, resident = pick.randint(1, 200), pick.randint(1, 8)
        add("splitFactor", plan.split_factor, tiles_, blocks, sms, resident)
        split = pick.randint(1, 64)
        add("splitTime", plan.split_time, split, tiles_, blocks, sms, resident)
        add("fillingSplit", plan.filling_split, tiles_, sms * resident)
        add("largestSplit", plan.largest_split, blocks)
        add("cdiv", plan.cdiv, pick.randint(0, 2**50), pick.randint(1, 2**20))
    return calls


def test_plan_js_is_plan_py(page, site):
    """Each function of plan.js gives what kernels/plan.py gives, over many shapes and
    devices, to the last bit (triton-lang/triton#10427, xmartlabs/cuda-calculator#1)."""
    page.goto(site.url + PAGE)
    calls = vectors()
    given = [(name, arguments) for name, arguments, _ in calls]
    results = page.evaluate(
        """async ([address, calls]) => {
          const plan = await import(address);
          return calls.map(([name, given]) => {
            try { return plan[name](...given); }
            catch (error) { return { error: error.message }; }
          });
        }""",
        [site.url + "assets/js/plan.js", given],
    )
    wrong = [
        (call, result)
        for call, result in zip(calls, results, strict=True)
        if call[2] != result
    ]
    assert len(calls) > 2000 and not wrong, wrong[:3]


def states(data) -> list[dict]:
    pick = random.Random(1)
    shapes = [shape for _, *shape in data["presets"]]
    shapes += [swept["shape"] for swept in data["gpus"][0]["splits"]]
    shapes += [[low, 16, 16] for low in (64, 256, 2**20)] + [[2**20, 2**16, 2**16]]
    for _ in range(40):
        shapes.append(
            [
                round(2 ** pick.uniform(6, 18)),
                *(round(2 ** pick.uniform(4, 14)) for _ in "KN"),
            ]
        )
    choices = [tile["id"] for tile in data["tiles"]["2"]]
    return [
        {
            **dict(zip("TKN", shape, strict=True)),
            "gpu": gpu["id"],
            "tile": pick.choice(["planned", "planned", *choices]),
            "bytes": pick.choice((2, 2, 4)),
        }
        for shape in shapes
        for gpu in data["gpus"]
    ]


def test_readings_js_is_readings_py(page, site, data):
    """Every sentence, number and line of a state is the one that Python makes."""
    page.goto(site.url + PAGE)
    asked = states(data)
    results = page.evaluate(
        """async ([address, data, states]) => {
          const { readings } = await import(address);
          return states.map((state) => readings(data, state));
        }""",
        [site.url + "assets/js/readings.js", data, asked],
    )
    assert len(asked) > 200
    for state, result in zip(asked, results, strict=True):
        assert result == json.loads(json.dumps(readings(data, state))), state


def test_script_changes_nothing_at_first(page, site, browser):
    """What stands without JavaScript is what the script draws for the first state."""
    still = browser.new_context(java_script_enabled=False)
    without = still.new_page()
    results = """[...document.querySelectorAll(
        ".explore [data-show], .explore [data-draw], .explore [data-when], " +
        ".explore [data-rows] tr, .explore input, .explore select")].map((e) => [
        e.textContent.replace(/\\s+/g, ""), e.value ?? null,
        ...[...e.attributes].filter(({ name }) => name !== "data-md-state")
          .map(({ name, value }) => `${name}=${value}`).sort()])"""
    for address in (PAGE, "lesson/split-k/"):
        without.goto(site.url + address)
        before = without.evaluate(results)
        assert len(before) > 60
        expect(without.locator(".explore-chips svg:visible")).to_have_count(2)
        expect(without.get_by_label("T, tokens")).to_be_disabled()
        without.locator(".explore-try summary").first.click()
        expect(without.locator(".explore-try details p").first).to_be_visible()
        open_widget(page, site, address=address)
        after = page.evaluate(results)
        assert after == before
    still.close()


# State


def test_state_is_in_the_address(page, site, data):
    """A link carries the state; other keys stay as they are, wrong values count for
    nothing, and a version this page does not know is not guessed at."""
    query = "?v=1&gpu=a100-sxm-80gb&T=4096&K=512&N=1e9&bytes=4&tile=64x64&from=mail#x"
    widget = open_widget(page, site, query)
    expect(widget.locator("#explore-gpu")).to_have_value("a100-sxm-80gb")
    expect(shown(widget, "state")).to_contain_text("T 4096 × K 512 × N 1024")
    expect(widget.locator("#explore-bytes")).to_have_value("4")
    expect(widget.locator("#explore-tile")).to_have_value("64x64")
    widget.get_by_label("N, exact number of output features").fill("2048")
    until(page, "location.search.includes('N=2048')")
    found = {k: v[0] for k, v in parse_qs(urlsplit(page.url).query).items()}
    assert found == {
        "v": "1",
        "gpu": "a100-sxm-80gb",
        "T": "4096",
        "K": "512",
        "N": "2048",
        "bytes": "4",
        "tile": "64x64",
        "from": "mail",
    }
    assert page.url.endswith("#x")
    page.reload()
    expect(shown(page.locator(WIDGET), "state")).to_contain_text("N 2048")
    for other in ("?v=2&T=64", "?T=-5&K=0x10&N=&gpu=toString&bytes=3&tile=9"):
        widget = open_widget(page, site, other)
        first = readings(data, data["default"])["show"]["state"]
        expect(shown(widget, "state")).to_have_text(first)
    widget = open_widget(page, site, "?T=99999999999&K=1")
    expect(shown(widget, "state")).to_contain_text("T 1048576 × K 16 ×")


def test_copy_and_reset(browser, site, watch):
    """The copied link opens the same state, which reset leaves."""
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = watch(context.new_page())
    widget = open_widget(page, site)
    widget.get_by_label("A real layer").select_option(label="70B GQA, K or V")
    state = shown(widget, "state").text_content()
    widget.get_by_role("button", name="Copy link").click()
    expect(widget.get_by_role("status")).to_have_text("Link copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    widget.get_by_role("button", name="Reset").click()
    expect(shown(widget, "state")).not_to_have_text(state)
    expect(widget.get_by_label("A real layer")).to_have_value("32768,1024,1024")
    page.goto(link)
    expect(shown(page.locator(WIDGET), "state")).to_have_text(state)
    context.close()


# Readers


def test_keyboard_and_spoken_values(page, site):
    """Arrow keys move a size; its value is spoken with name and unit, and the
    sentence, a polite live region, follows."""
    widget = open_widget(page, site)
    slide = widget.get_by_label("K, input features", exact=True)
    says = shown(widget, "sentence")
    expect(says).to_have_attribute("aria-live", "polite")
    before = says.text_content()
    slide.focus()
    page.keyboard.press("ArrowRight")
    expect(slide).to_have_attribute("aria-valuetext", "K 1216 input features")
    expect(widget.get_by_label("K, exact number of input features")).to_have_value(
        "1216"
    )
    expect(says).not_to_have_text(before)
    expect(widget.get_by_label("A real layer")).to_have_value("")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(slide).to_have_attribute("aria-valuetext", "K 2048 input features")
    page.keyboard.press("Home")
    expect(slide).to_have_attribute("aria-valuetext", "K 16 input features")
    page.keyboard.press("Tab")
    page.keyboard.type("7")  # 167
    expect(slide).to_have_attribute("aria-valuetext", re.compile(r"K \d+ input"))
    unnamed = widget.evaluate("""root => [...root.querySelectorAll(
        "input, select, button")].filter((e) => !(e.labels?.length ||
        e.ariaLabel || e.textContent.trim())).length""")
    assert unnamed == 0


def test_a_number_out_of_range_is_brought_back(page, site):
    """While typing, an impossible size changes nothing; then it is the nearest."""
    widget = open_widget(page, site)
    field = widget.get_by_label("T, exact number of tokens")
    field.fill("3")
    expect(shown(widget, "state")).to_contain_text("T 32768")
    field.blur()
    expect(field).to_have_value("64")
    expect(shown(widget, "state")).to_contain_text("T 64")


def test_predict_then_look(page, site):
    """A choice is judged when the answer is shown, and the widget shows its state."""
    widget = open_widget(page, site)
    prompt = widget.locator(".explore-try fieldset").first
    right = int(prompt.get_attribute("data-right"))
    prompt.locator("input").nth(right).check()
    expect(prompt.locator("details p")).to_be_hidden()
    prompt.locator("summary").click()
    expect(prompt.locator("[data-verdict]")).to_have_text("As you said. ")
    expect(shown(widget, "state")).to_contain_text("T 131072")
    other = widget.locator(".explore-try fieldset").nth(1)
    wrong = (int(other.get_attribute("data-right")) + 1) % 3
    other.locator("input").nth(wrong).check()
    other.locator("summary").click()
    expect(other.locator("[data-verdict]")).to_have_text("Not as you said. ")
    expect(shown(widget, "state")).to_contain_text("K 512 × N 512")


def test_datasheet_gpus_are_marked(page, site):
    """Nothing that was not measured looks measured; a GPU whose warps are of 64 has
    no plan and no curve."""
    widget = open_widget(page, site)
    expect(widget.locator(".explore-atomic").first).to_be_visible()
    widget.get_by_label("GPU").select_option(label="NVIDIA H100 SXM")
    expect(shown(widget, "origin")).to_have_text("datasheet, not measured")
    assert not widget.locator("[data-draw=points_atomic]").get_attribute("d")
    expect(widget.locator(".explore-curve")).to_be_visible()
    widget.get_by_label("GPU").select_option(label="AMD Instinct MI300X")
    expect(widget.locator(".explore-curve")).to_be_hidden()
    expect(widget.locator(".explore-chips figure:visible")).to_have_count(1)
    expect(shown(widget, "sentence")).to_contain_text("warps of 64")
    widget.get_by_label("GPU").select_option(index=0)
    expect(widget.locator(".explore-curve")).to_be_visible()


def test_slider_to_redraw(page, site):
    """From a slider's input to styled and laid-out results within 50 ms, by the
    median of sixty steps."""
    widget = open_widget(page, site, "?bytes=4&tile=64x64")
    took = widget.evaluate("""root => {
      const slide = root.querySelector("[data-slide=K]");
      const steps = [];
      for (let step = 0; step < 60; step += 1) {
        slide.value = 4 + (step % 48) / 4;
        const start = performance.now();
        slide.dispatchEvent(new Event("input", { bubbles: true }));
        root.getBoundingClientRect();
        steps.push(performance.now() - start);
      }
      return steps.sort((a, b) => a - b)[30];
    }""")
    assert took <= 50


def test_phone_and_audit(page, site):
    """At 360 px the largest numbers stay within the page, and an audit by WCAG finds
    nothing on the page in any state of the widget."""
    page.set_viewport_size({"width": 360, "height": 740})
    for gpu in ("rtx-4090", "mi300x"):
        query = f"?gpu={gpu}&T=1048576&K=65536&N=65536"
        open_widget(page, site, query)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 360
    open_widget(page, site, "?gpu=mi300x")
    assert not axe(page)


def test_paper_shows_the_state(page, site):
    """On paper stand the state chosen, in words, and its results, without controls."""
    widget = open_widget(page, site, "?K=512&N=512")
    page.emulate_media(media="print")
    expect(shown(widget, "state")).to_be_visible()
    expect(shown(widget, "state")).to_contain_text("K 512 × N 512")
    expect(widget.locator(".explore-controls")).to_be_hidden()
    expect(widget.locator(".explore-curve > svg")).to_be_visible()


def test_pages_come_and_go(page, site):
    """Instant navigation: each arrival has one working widget, what left listens no
    more, and its address is not written over another page's."""
    page.goto(site.url)
    page.evaluate("window.sameDocument = true")
    follow(page, PAGE)
    widget = page.locator(WIDGET)
    expect(widget).to_have_count(1)
    widget.get_by_label("T, exact number of tokens").fill("4096")
    page.locator('.md-sidebar--primary a[href$="about/"]').first.click()
    arrive(page, "about/")
    page.wait_for_timeout(400)
    assert urlsplit(page.url).query == ""
    follow(page, "lesson/split-k/")
    widget = page.locator(WIDGET)
    expect(widget).to_have_count(1)
    widget.get_by_label("A real layer").select_option(label="MoE expert, 2880")
    expect(shown(widget, "tiles")).to_have_text("529")
    assert page.evaluate("window.sameDocument"), "not an instant navigation"


def test_content_policy(browser, site, watch):
    """The widget works where only the site's own scripts may run (18F/tock#1417)."""
    inline = re.findall(r"<script>(.+?)</script>", site.html(PAGE), re.DOTALL)
    digests = (hashlib.sha256(text.encode()).digest() for text in inline)
    hashes = " ".join(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests)
    policy = (
        f"default-src 'self'; script-src 'self' {hashes}; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:"
    )

    def with_policy(route):
        response = route.fetch()
        headers = {**response.headers, "content-security-policy": policy}
        route.fulfill(response=response, headers=headers)

    context = browser.new_context()
    page = watch(context.new_page())
    context.route(lambda url: url.split("?")[0].endswith("/"), with_policy)
    widget = open_widget(page, site, "?K=2048")
    expect(shown(widget, "state")).to_contain_text("K 2048")
    context.close()


def test_the_first_state_stays_without_the_file(page, site, problems):
    """Where its file does not arrive, the first state stays, and a sentence."""
    page.route(lambda url: "explore.json" in url, lambda r: r.fulfill(status=404))
    page.goto(site.url + PAGE)
    expect(page.locator(".explore-status")).to_contain_text("could not be loaded")
    expect(page.locator(".explore-says")).to_be_visible()
    expect(page.get_by_label("T, tokens")).to_be_disabled()
    problems.clear()
