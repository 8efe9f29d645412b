"""The search page under a reader's hands: drop, paste, pick, click on, slider, filters, map, keyboard, phone, dark."""

import base64
from pathlib import Path

import pytest
from support.pictures import write_picture, write_pictures
from support.stand_in_model import StandInModel

from ccp_dml.serving.listed_images import list_images
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.index_writer import add_images, remove_images
from ccp_dml.serving.web.server import make_app

pytestmark = pytest.mark.browser

SEND = """([content, kind, event]) => {
  const bytes = Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], "query.png", { type: kind }));
  const made = event === "drop" ? new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })
                                : new ClipboardEvent("paste", { clipboardData: data, bubbles: true });
  document.body.dispatchEvent(made);
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def index(folder):
    pictures = write_pictures(folder / "pictures", per_class=8)
    table = pictures / "list.csv"
    rows = [f"red/{n}.png,red,{2000 + n % 2},far_north" for n in range(8)]
    rows += [f'blue/{n}.png,blue,2001,"<img src=x onerror=alert(1)>"' for n in range(8)]
    table.write_text("\n".join(["path,label,year,place", *rows]))
    target = folder / "colours.index"
    add_images(target, StandInModel(), folder, list_images([pictures]))
    add_images(target, StandInModel(), folder, list_images([table]))
    return SearchIndex.open(target)


@pytest.fixture(scope="module")
def query(folder):
    return write_picture(folder / "query.png", (200, 60, 50), 777)


@pytest.fixture
def open_page(browser, serve_app, index):
    contexts = []

    def open_it(width=1280, scheme="light", model=None, path="/"):
        server = serve_app(make_app(model or StandInModel(), index, ["127.0.0.1"], with_tsne=False))
        context = browser.new_context(
            viewport={"width": width, "height": 844}, color_scheme=scheme, has_touch=width < 600, accept_downloads=False
        )
        contexts.append(context)
        page = context.new_page()
        page.faults, page.requested = [], []
        page.on("console", lambda message: page.faults.append(message.text))
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("request", lambda request: page.requested.append(request.url))
        page.goto(server.address + path)
        page.locator("#results .card").first.wait_for()
        page.address = server.address
        return page

    yield open_it
    for context in contexts:
        context.close()


def until(page, expression, argument=None):
    """Wait until something holds; Playwright's own way needs `eval`, which the page forbids."""
    for _ in range(200):
        if page.evaluate(expression, argument):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {expression}")


def send(page, file: Path, event="drop", kind="image/png"):
    page.evaluate(SEND, [base64.b64encode(file.read_bytes()).decode(), kind, event])


def searched(page):
    page.locator("#results[data-milliseconds] .card .facts").first.wait_for()
    return page.locator("#results .card")


def expected_ids(index, file, k=20, where=None):
    (hits,) = index.search(StandInModel().embed([file]), k, where)
    return [hit.item.id for hit in hits]


def ids(page):
    return [int(card.get_attribute("data-id")) for card in page.locator("#results .card").all()]


@pytest.mark.parametrize("way", ["drop", "paste", "pick"])
def test_a_picture_finds_its_neighbours(open_page, index, query, way):
    page = open_page()
    if way == "pick":
        page.locator("#file").set_input_files(query)
    else:
        send(page, query, way)
    searched(page)
    assert ids(page) == expected_ids(index, query)
    assert page.locator("#preview").evaluate("(e) => e.naturalWidth") == 24
    first = page.locator("#results .card").first
    assert first.locator(".class").inner_text() == "red"
    assert page.faults == []
    assert all(url.startswith((page.address, "blob:")) for url in page.requested)


def test_any_result_searches_on_and_the_way_back_is_kept(open_page, index, query, artefacts):
    page = open_page()
    send(page, query)
    searched(page)
    chosen = ids(page)[3]
    page.locator("#results .card").nth(3).click()
    until(page, "document.querySelector('#truth').value !== ''")
    (hits,) = index.search(index.vectors_of([chosen]), 20, leave_out=[chosen])
    until(page, f"document.querySelector('#results .card').dataset.id == '{hits[0].item.id}'")
    assert ids(page) == [hit.item.id for hit in hits]
    label = index.items([chosen])[0].label
    for card, hit in zip(page.locator("#results .card").all(), hits, strict=True):
        verdict = "✓ same class" if hit.item.label == label else "✗ other class"
        assert verdict in card.inner_text()
    right = sum(hit.item.label == label for hit in hits)
    assert f"{right} of 20 results are of the same class." in page.locator("#summary").inner_text()
    page.screenshot(path=artefacts("search-results.png"), full_page=True)
    page.locator("#results .card").nth(1).click()
    until(page, f"location.hash === '#{hits[1].item.id}'")
    page.go_back()
    until(page, f"document.querySelector('#results .card').dataset.id == '{hits[0].item.id}'")
    page.go_back()  # to the picture that was dropped
    until(page, "document.querySelector('#query-name').textContent === 'query.png'")
    shown = "[...document.querySelectorAll('#results .card')].map((card) => card.dataset.id).join()"
    until(page, f"{shown} === '{','.join(map(str, expected_ids(index, query)))}'")
    page.go_back()  # to the start
    until(page, "document.querySelector('#summary').textContent.startsWith('Drop a picture')")
    assert page.locator("#results .card").count() == 24
    assert page.locator("#query-name").inner_text() == ""
    assert page.locator("#preview").is_hidden()
    assert page.locator("#ruler").is_hidden()
    page.go_forward()
    until(page, "document.querySelector('#query-name').textContent === 'query.png'")
    assert page.faults == []


def test_what_a_picture_shows_can_be_chosen_before_there_is_one(open_page):
    page = open_page()
    page.locator("#truth").select_option("red")
    page.wait_for_timeout(100)
    assert page.locator("#results .card").count() == 24
    assert page.locator("#message").inner_text() == ""


def test_the_page_starts_at_the_certified_rate_and_says_where_rates_were_measured(open_page, query):
    model = StandInModel()
    model.certificate["threshold"]["wanted"] = 0.05
    page = open_page(model=model)
    send(page, query)
    searched(page)
    assert page.locator("#rate-text").inner_text() == "5 %"
    assert "on test classes it matched" in page.locator("#promise").inner_text()
    told = "with at most 5 % false matches on validation classes: at that rate, up to 2 of 32 images of other classes."
    assert told in page.locator("#summary").inner_text()
    assert "false matches on validation classes before this line" in page.locator("#results .line").inner_text()


def test_the_slider_draws_the_certificates_threshold_through_the_results(open_page, query):
    page = open_page()
    send(page, query)
    searched(page)
    distances = [
        float(item.get_attribute("data-distance")) for item in page.locator("#results li[data-distance]").all()
    ]
    slider = page.locator("#rate")
    thresholds = page.evaluate("fetch('/index').then((answer) => answer.json())")["thresholds"]
    assert slider.get_attribute("max") == str(len(thresholds) - 1)
    assert page.locator("#rate-text").inner_text() == "1 %"
    for place in (0, len(thresholds) // 2, len(thresholds) - 1):
        slider.evaluate("(e, value) => { e.value = value; e.dispatchEvent(new Event('input')); }", place)
        threshold = thresholds[place]["distance"]
        inside = sum(distance <= threshold for distance in distances)
        assert page.locator("#results li.beyond").count() == len(distances) - inside
        before = page.evaluate("[...document.querySelector('#results').children].findIndex((e) => e.matches('.line'))")
        assert before == inside
        assert f"{inside} of {len(distances)} lie left of the line" in page.locator("#summary").inner_text()
        axis, mark = (page.locator(selector).bounding_box() for selector in ("#axis", "#axis .mark"))
        share = (mark["x"] + mark["width"] / 2 - axis["x"]) / axis["width"]
        assert share == pytest.approx(
            min(1, threshold / (1.04 * max(max(distances), min(threshold, 1.6 * max(distances))))), abs=0.005
        )
        assert thresholds[place]["promise"] == page.locator("#promise").inner_text()
    slider.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert slider.input_value() == "1"
    page.locator("#results .card").first.focus()
    page.keyboard.press("]")
    assert slider.input_value() == "2"


def test_filters_narrow_the_results(open_page, index, query):
    page = open_page()
    send(page, query)
    searched(page)

    def wait_for(where):
        wanted = expected_ids(index, query, where=where)
        until(
            page,
            "(wanted) => [...document.querySelectorAll('#results .card')].map((e) => e.dataset.id).join() === wanted",
            ",".join(map(str, wanted)),
        )
        return wanted

    assert "at that rate, up to" in page.locator("#summary").inner_text()
    page.get_by_label("Only this class").select_option("red")
    assert len(wait_for('label = "red"')) == 8
    assert "on validation classes, of the images of other classes that fit" in page.locator("#summary").inner_text()
    page.get_by_label("year").select_option(label="2001")
    assert len(wait_for('label = "red" and year = 2001')) == 4
    page.get_by_label("Only this class").select_option("")
    page.get_by_label("year").select_option("")
    page.get_by_label("place").select_option(label="<img src=x onerror=alert(1)>")
    assert len(wait_for("place = '<img src=x onerror=alert(1)>'")) == 8
    page.get_by_label("place").select_option("")
    page.get_by_label("Condition").fill('year < 2001 or label = "<b>bold"')
    page.keyboard.press("Enter")
    assert len(wait_for('year < 2001 or label = "<b>bold"')) == 12
    page.get_by_label("Condition").fill("year <")
    page.keyboard.press("Enter")
    page.locator("#message.problem").wait_for()
    assert "cannot be read" in page.locator("#message").inner_text()


def test_a_condition_that_nothing_fits_says_why(open_page, query):
    page = open_page()
    send(page, query)
    searched(page)
    page.locator("#where").fill("year = '2000'")
    page.locator("#where").press("Enter")
    until(
        page, "document.querySelector('#message').textContent.startsWith('No image fits these conditions. `year` is')"
    )
    assert page.locator("#results .card").count() == 0


def test_no_filter_is_offered_that_a_condition_cannot_say(open_page, index, monkeypatch):
    labels = {"red": 8, "two\nlines": 8}
    values = {"place": ["far_north", "two\nlines"], "a`b": ["x"], "note": ["one\ttab"]}
    monkeypatch.setattr(index, "label_counts", lambda: labels)
    monkeypatch.setattr(index, "attribute_values", lambda: values)
    page = open_page()
    assert page.locator("#class-filter option").all_inner_texts()[1:] == ["red (8)"]
    assert page.locator("#attribute-filters select").count() == 1
    assert page.get_by_label("place").locator("option").all_inner_texts() == ["any", "far_north"]


def test_html_in_names_is_text(open_page, query):
    page = open_page()
    send(page, query)
    page.locator("#k").select_option("50")
    until(page, "document.querySelectorAll('#results .card').length === 32")
    assert page.locator("#results .class", has_text="<b>bold").count() == 8
    assert page.locator("#results .facts", has_text="<img src=x").count() == 8
    assert page.locator("#results b, #results .facts img").count() == 0
    assert page.faults == []


def test_long_names_break_behind_their_marks(open_page, query):
    page = open_page()
    send(page, query)
    place = searched(page).locator(".facts", has_text="place: far_north").first
    assert place.inner_text() == "place: far_north"
    assert place.inner_html() == "place: far_<wbr>north"
    assert page.locator("#results wbr").count() == page.locator("#results .facts", has_text="far_north").count()


def test_what_is_no_picture_gets_a_sentence(open_page, folder):
    page = open_page()
    text = folder / "notes.txt"
    text.write_text("no picture")
    send(page, text, kind="text/plain")
    page.locator("#message.problem").wait_for()
    assert "not a picture" in page.locator("#message").inner_text()


def test_the_map_is_walked_and_searched_from(open_page, index, artefacts):
    page = open_page()
    page.get_by_role("tab", name="Map").click()
    canvas = page.locator("#canvas")
    until(page, "document.querySelector('#map-text').textContent.includes('32 images by PCA')")
    canvas.focus()
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
        page.locator("#tooltip").wait_for()
        seen.append(page.locator("#tooltip span").inner_text())
    assert len(set(seen)) >= 3
    for key in ("+", "+", "-", "0"):
        page.keyboard.press(key)
    page.screenshot(path=artefacts("search-map.png"))
    number = int(page.locator("#tooltip span").inner_text().removeprefix("image "))
    assert page.locator("#tooltip b").inner_text() == index.items([number])[0].label
    page.keyboard.press("Enter")
    until(page, f"location.hash === '#{number}'")
    assert page.get_by_role("tab", name="Results").get_attribute("aria-selected") == "true"
    searched(page)
    page.get_by_role("tab", name="Map").click()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -600)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 80, box["y"] + box["height"] / 2)
    page.mouse.up()
    assert page.locator("#view-map").is_visible()  # dragging chooses nothing
    assert page.faults == []


def test_confused_classes_are_listed(open_page, artefacts):
    page = open_page()
    page.get_by_role("tab", name="Results").focus()
    page.keyboard.press("ArrowLeft")
    until(page, "document.querySelector('#confused-text').textContent !== ''")
    assert "% of 32 images the nearest other image is of the same class" in page.locator("#confused-text").inner_text()
    found = page.evaluate("fetch('/index/confusions').then((answer) => answer.json())")
    assert page.locator("#confused li").count() == len(found["pairs"])
    page.screenshot(path=artefacts("search-confused.png"))


def test_confused_classes_are_listed_once_however_often_they_are_asked_for(open_page):
    page = open_page()
    pair = {"classes": ["blue", "red"], "times": 3, "share": 0.2, "example": [1, 2]}
    page.route("**/index/confusions", lambda route: route.fulfill(json={"queries": 32, "right": 0.9, "pairs": [pair]}))
    page.evaluate(
        "for (const tab of ['confused', 'results', 'confused']) document.querySelector(`#tab-${tab}`).click()"
    )
    until(page, "document.querySelector('#confused-text').textContent !== ''")
    page.wait_for_timeout(200)  # until both answers have come
    assert page.locator("#confused > li").count() == 1


def test_an_image_that_is_gone_takes_its_tooltip_from_the_map(open_page):
    shown, hidden = open_page().evaluate("""async () => {
      const { IndexMap } = await import("/page/map.js");
      const places = (ids) => ids.map(() => 0.5);
      const points = (ids) => ({ ids, labels: ids.map(() => -1), classes: [], x: places(ids), y: places(ids) });
      const map = new IndexMap(document.querySelector("#map"), points([1, 2]), () => {}, (id) => `/images/${id}`);
      map.select(0);
      const shown = !map.tooltip.hidden;
      map.move(points([2]));
      return [shown, map.tooltip.hidden];
    }""")
    assert shown
    assert hidden


def test_a_picture_that_cannot_be_read_leaves_no_results_of_another(open_page, query, folder):
    page = open_page()
    send(page, query)
    searched(page)
    broken = folder / "broken.png"
    broken.write_bytes(query.read_bytes()[:100])
    send(page, broken)
    until(page, "document.querySelector('#message').textContent.startsWith('The picture is damaged')")
    assert page.locator("#results .card").count() == 0
    assert not page.locator("#ruler").is_visible()
    assert page.locator("#summary").inner_text() == ""


def test_the_line_waits_for_results(open_page, query):
    page = open_page()
    assert not page.locator("#rate-box").is_visible()
    page.keyboard.press("]")
    send(page, query)
    searched(page)
    assert page.locator("#rate-text").inner_text() == "1 %"
    assert page.locator("#rate-box").is_visible()


def test_an_empty_index_says_so(browser, serve_app, folder, query):
    target = folder / "empty.index"
    add_images(target, StandInModel(), folder, list_images([query]))
    remove_images(target, [query])
    server = serve_app(make_app(StandInModel(), SearchIndex.open(target)))
    page = browser.new_page()
    page.goto(server.address)
    until(page, "document.querySelector('#message').textContent.startsWith('This index is empty')")
    assert "start from one of these" not in page.locator("body").inner_text()
    send(page, query)
    until(page, "document.querySelector('#query-name').textContent === 'query.png'")
    until(page, "document.querySelector('#message').textContent.startsWith('This index is empty')")
    page.close()


def test_arrow_keys_walk_through_results(open_page, query):
    page = open_page()
    send(page, query)
    searched(page)
    page.locator("#results .card").first.focus()
    focused = "document.activeElement.dataset.id"
    order = [str(number) for number in ids(page)]
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == order[1]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    below = order.index(page.evaluate(focused))
    assert below > 1
    page.keyboard.press("Enter")
    until(page, f"location.hash === '#{order[below]}'")


def test_without_a_certificate_there_is_no_slider(open_page, query):
    model = StandInModel()
    model.certificate = None
    page = open_page(model=model)
    send(page, query)
    searched(page)
    assert not page.locator("#rate-box").is_visible()
    assert page.locator("#results .line").count() == 0
    assert page.faults == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (390, "light"), (1280, "dark")])
def test_phone_and_dark(open_page, query, artefacts, width, scheme):
    page = open_page(width, scheme)
    page.locator("#file").set_input_files(query)
    searched(page)
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) <= 0
    page.screenshot(path=artefacts(f"search-{width}-{scheme}.png"), full_page=True)
    if width < 600:
        first = page.locator("#results .card img").first.bounding_box()
        assert first["y"] + first["height"] <= page.viewport_size["height"]  # seen without scrolling
    page.get_by_role("tab", name="Map").click()
    page.locator("#canvas").wait_for()
    assert page.evaluate(overflow) <= 0
    if width < 600:
        box = page.locator("#canvas").bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        assert page.locator("#view-map").is_visible()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(20, 23, 27)") == (scheme == "dark")
    assert page.faults == []


def test_the_interfaces_page_needs_no_scripts(browser, serve_app, index, artefacts):
    server = serve_app(make_app(StandInModel(), index))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(server.address + "/docs")
    assert page.get_by_text("POST /search").is_visible()
    page.screenshot(path=artefacts("search-docs.png"), full_page=True)
    context.close()


def test_a_page_follows_its_index(browser, serve_app, tmp_path, query):
    pictures, target = write_pictures(tmp_path / "pictures"), tmp_path / "growing.index"
    add_images(target, StandInModel(), tmp_path, list_images([pictures]))
    server = serve_app(make_app(StandInModel(), SearchIndex.open(target), ["127.0.0.1"], with_tsne=False))
    page = browser.new_page()
    page.goto(server.address)
    page.locator("#results .card").first.wait_for()
    gone = ids(page)[0]
    page.locator("#class-filter").select_option("green")
    page.locator("#tab-map").click()
    until(page, "document.querySelector('#map-text').textContent.startsWith('24 images')")
    write_picture(tmp_path / "more" / "violet" / "new.png", (150, 40, 220), 5)
    add_images(target, StandInModel(), tmp_path, list_images([tmp_path / "more"]))
    send(page, query)
    searched(page)
    assert "25 images of 5 classes" in page.locator("#about").inner_text()
    assert "violet (1)" in page.locator("#class-filter").inner_text()
    assert page.locator("#class-filter").input_value() == "green"
    page.locator("#tab-map").click()
    until(page, "document.querySelector('#map-text').textContent.startsWith('25 images')")
    remove_images(target, [Path(item.path) for item in SearchIndex.open(target).items([gone])])
    page.goto(f"{server.address}/#{gone}")
    until(page, "document.querySelector('#message').textContent.includes('no image with the id')")
    assert "24 images of 5 classes" in page.locator("#about").inner_text()
    page.close()


def test_what_no_browser_can_show_leaves_no_broken_picture(open_page, tmp_path, query):
    page = open_page()
    send(page, query)
    searched(page)
    assert page.locator("#preview").is_visible()
    text = tmp_path / "notes.txt"
    text.write_text("no picture")
    page.locator("#file").set_input_files(text)
    until(page, "document.querySelector('#message').classList.contains('problem')")
    until(page, "document.querySelector('#preview').hidden")
