"""The server over a real socket: what it answers, what it refuses, what it never tells."""

import io
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.stand_in_model import StandInModel

from ccp_dml.errors import UserError
from ccp_dml.serving.listed_images import list_images
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.index_writer import add_images
from ccp_dml.serving.web.server import make_app
from ccp_dml.serving.web.uploads import MOST_BYTES

from .test_uploads import bomb, encoded


@pytest.fixture
def index(index_folder, pictures, model):
    table = pictures / "list.csv"
    table.write_text("\n".join(["path,label,year", *(f"red/{n}.png,red,{2000 + n}" for n in range(6))]))
    add_images(index_folder, model, pictures, list_images([table]))
    return SearchIndex.open(index_folder)


@pytest.fixture
def server(serve_app, index, model):
    return serve_app(make_app(model, index, ["127.0.0.1"], with_tsne=False))


@pytest.fixture
def red(pictures):
    return ((pictures / "red" / "0.png").read_bytes(), "image/png")


def test_health_says_what_is_served(server, model):
    assert server.get("/health").json() == {
        "status": "ok",
        "model": {"name": "stand-in", "digest": model.digest, "dim": 48},
        "index": {"name": "colours.index", "images": 24, "warning": None},
    }


def test_an_index_that_is_not_whole_says_so(serve_app, index, model):
    index.warning = "it is not whole"
    server = serve_app(make_app(model, index, ["127.0.0.1"], with_tsne=False))
    assert server.get("/health").json()["index"]["warning"] == "it is not whole"
    assert server.get("/index").json()["warning"] == "it is not whole"


def test_a_running_server_sees_what_is_added_to_its_index(server, index_folder, pictures, model, red):
    before = server.post("/search", {"image": red}, k=50).json()
    copy = pictures.parent / "later" / "crimson" / "copy.png"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(red[0][:-1] + b"x")  # another file of the same picture
    add_images(index_folder, model, pictures, list_images([copy.parents[1]]))
    after = server.post("/search", {"image": red}, k=50).json()
    assert (len(before["results"]), len(after["results"])) == (24, 25)
    assert before["version"] != after["version"] == server.get("/index").json()["version"]
    assert server.get("/index").json()["labels"]["crimson"] == 1
    assert server.get("/health").json()["index"]["images"] == 25


@pytest.mark.parametrize(
    ("method", "address", "said"),
    [
        ("GET", "/search", "/search is called with POST, not with GET"),
        ("GET", "/serach", "There is nothing at /serach; /docs"),
        ("POST", "/search?id=1&kk=3", "There is no field 'kk'; there are id, k, where, within."),
        ("POST", "/search?image=query.jpg", "'image' came as text, not as a file; with curl, write -F image=@FILE."),
        ("POST", "/embed?k=3", "There is no field 'k'; send pictures alone."),
    ],
)
def test_a_wrong_address_or_field_is_told_what_to_send(server, method, address, said):
    answer = server.call(method, address, None, {})
    assert 400 <= answer.status < 500
    assert said in answer.json()["detail"]


def test_search_gives_what_the_index_gives(server, index, model, red):
    (expected,) = index.search(model.embed([Image.open(io.BytesIO(red[0]))]), 7, "year < 2004")
    found = server.post("/search", {"image": red}, k=7, where="year < 2004").json()["results"]
    assert [(row["id"], row["distance"], row["label"]) for row in found] == [
        (hit.item.id, hit.distance, hit.item.label) for hit in expected
    ]
    assert found[0]["path"] == "red/0.png"  # never where it is stored
    assert found[0]["attributes"] == {"year": 2000}


def test_a_picture_may_be_the_whole_body(server, red):
    whole = server.call("POST", "/search?k=3", red[0], {"Content-Type": "image/png"}).json()
    assert whole["results"] == server.post("/search", {"file": red}, k=3).json()["results"]


def test_an_indexed_image_searches_for_others(server, index):
    answer = server.post("/search", id=1, k=5).json()
    assert answer["query"]["id"] == 1
    (expected,) = index.search(index.vectors_of([1]), 5, leave_out=[1])
    assert [row["id"] for row in answer["results"]] == [hit.item.id for hit in expected]
    body = json.dumps({"id": 1, "k": 5}).encode()
    assert server.call("POST", "/search", body, {"Content-Type": "application/json"}).json() == answer
    assert server.call("POST", "/search?id=1&k=5", None, {}).json() == answer


def test_within_cuts_at_the_certificates_threshold(server, model, red):
    everything = server.post("/search", {"image": red}, k=24).json()["results"]
    answer = server.post("/search", {"image": red}, k=24, within=0.2).json()
    assert answer["threshold"] == model.threshold(0.2)
    assert answer["results"] == [row for row in everything if row["distance"] <= model.threshold(0.2)]
    assert 0 < len(answer["results"]) < 24


def test_embed_gives_the_models_vectors(server, model, pictures):
    paths = [pictures / "red" / "0.png", pictures / "blue" / "1.png"]
    files = {f"image{number}": (path.read_bytes(), "image/png") for number, path in enumerate(paths)}
    answer = server.post("/embed", files).json()
    np.testing.assert_allclose(answer["vectors"], model.embed(paths), rtol=1e-6)
    assert (answer["dim"], answer["model"]) == (48, model.digest)


def test_same_decides_by_the_threshold(server, model, pictures):
    one, two = ((pictures / name).read_bytes() for name in ("red/0.png", "blue/0.png"))
    answer = server.post("/same", {"a": (one, "image/png"), "b": (one, "image/png")}).json()
    assert answer["same"] is True
    assert answer["distance"] == 0
    answer = server.post("/same", {"a": (one, "image/png"), "b": (two, "image/png")}, false_match_rate=0.1).json()
    assert answer["same"] is False
    assert answer["threshold"] == model.threshold(0.1)
    assert answer["promise"]


def test_only_two_requests_with_pictures_are_worked_on_at_once(serve_app, index, model, red):
    lock, at_work, most = threading.Lock(), 0, 0

    def embed(*arguments, **options):
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.1)
        with lock:
            at_work -= 1
        return StandInModel.embed(model, *arguments, **options)

    model.embed = embed
    server = serve_app(make_app(model, index, ["127.0.0.1"], with_tsne=False))
    with ThreadPoolExecutor(6) as clients:
        paths = ["/search", "/embed"] * 3
        assert [answer.status for answer in clients.map(lambda path: server.post(path, {"image": red}), paths)] == [
            200
        ] * 6
    assert most == 2


PNG = encoded(Image.new("RGB", (8, 8), "red"))


@pytest.mark.parametrize(
    ("path", "files", "fields", "status", "sentence"),
    [
        ("/search", {"image": (b"some text", "text/plain")}, {}, 415, "of type text/plain, not a picture"),
        ("/search", {"image": (b"some text", "image/jpeg")}, {}, 415, "no picture that can be read"),
        ("/search", {"image": (b"", "image/png")}, {}, 400, "The file is empty"),
        ("/search", {"image": (bomb(10_000, 10_000), "image/png")}, {}, 413, "too many pixels"),
        ("/search", {"image": (b"x" * (MOST_BYTES + 1), "image/png")}, {}, 413, "too large"),
        ("/search", {"image": (b"x" * (2 * MOST_BYTES), "image/png")}, {}, 413, "too large"),
        ("/search", {}, {}, 400, "Send one picture in the field 'image', or the id"),
        ("/search", {"image": (PNG, "image/png"), "b": (PNG, "image/png")}, {}, 400, "in the field 'id'; 2 came."),
        ("/search", {"image": (PNG, "image/png")}, {"id": 1}, 400, "in the field 'id'; 2 came."),
        ("/search", {}, {"id": 999}, 404, "no image with the id 999"),
        ("/search", {}, {"id": "../../etc/passwd"}, 422, "id: input should be a valid integer"),
        ("/search", {"image": (PNG, "image/png")}, {"k": 0}, 422, "k: input should be greater than or equal to 1"),
        ("/search", {"image": (PNG, "image/png")}, {"k": 10**9}, 422, "k: input should be less"),
        ("/search", {"image": (PNG, "image/png")}, {"where": "1=1; DROP TABLE items"}, 400, "cannot be read"),
        ("/search", {"image": (PNG, "image/png")}, {"where": "nothing = 1"}, 400, "no attribute 'nothing'"),
        ("/search", {"image": (PNG, "image/png")}, {"within": 1e-9}, 400, "too few pairs"),
        ("/embed", {}, {}, 400, "at least one picture"),
        ("/same", {"a": (PNG, "image/png")}, {}, 400, "Send two pictures, in the fields 'a' and 'b'; 1 came"),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_wrong_requests_get_a_sentence(server, path, files, fields, status, sentence):
    answer = server.post(path, files, **fields)
    assert answer.status == status
    assert sentence in answer.json()["detail"]
    assert server.get("/health").status == 200


def test_wrong_bodies_get_a_sentence(server):
    for body, kind, status, sentence in [
        (b"hello", "text/plain", 415, "The content type text/plain is not read"),
        (b"hello", "multipart/form-data; boundary=x", 400, ""),
        (b"{", "application/json", 400, "not valid JSON"),
        (b"[1]", "application/json", 400, "must be an object"),
        (PNG, "application/x-www-form-urlencoded", 415, "with curl, write -F image=@FILE."),
    ]:
        answer = server.call("POST", "/search", body, {"Content-Type": kind})
        assert answer.status == status
        assert sentence in answer.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/images/..%2f..%2fetc%2fpasswd",
        "/images/%2fetc%2fpasswd",
        "/images/../../etc/passwd",
        "/images/1.png",
        "/images/-1",
        "/images/999999999999999999999999",
        "/images/1?size=../../x",
        "/page/..%2fserver.py",
        "/page/results.html",
        "/page/../server.py",
    ],
)
def test_files_are_never_named_by_path(server, path):
    answer = server.get(path)
    assert answer.status in (404, 422)
    assert b"root:" not in answer.content
    assert b"import" not in answer.content


def test_images_are_small_copies_and_missing_ones_are_said_to_be(server, pictures):
    answer = server.get("/images/1")
    assert answer.headers["content-type"] == "image/webp"
    assert Image.open(io.BytesIO(answer.content)).size == (24, 24)
    for path in pictures.rglob("*.png"):
        path.unlink()
    assert server.get("/images/1").json() == {"detail": "The file of image 1 is missing or cannot be read."}
    assert len(server.post("/search", id=1, k=5).json()["results"]) == 5  # still found


def test_a_file_that_is_no_picture_any_more_is_not_shown(server, pictures):
    for path in pictures.rglob("*.png"):
        path.write_text("a secret")
    answer = server.get("/images/3")
    assert answer.status == 404
    assert b"secret" not in answer.content


def test_every_answer_forbids_what_comes_from_elsewhere(server):
    for path in ("/", "/docs", "/health", "/page/search.js", "/nothing", "/images/1"):
        headers = server.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    for path in ("/", "/docs", "/page/search.js", "/page/map.js", "/page/search.css"):
        text = server.get(path).content.decode().replace("http://127.0.0.1", "")
        assert "http://" not in text
        assert "https://" not in text


def test_another_name_of_this_machine_is_refused(server):
    answer = server.get("/health", Host="evil.example:8000")
    assert answer.status == 400
    assert answer.json()["detail"].startswith("This server answers to 127.0.0.1 only, not to evil.example; --host")
    assert server.get("/health", Host="127.0.0.1.evil.example").status == 400
    assert server.get("/health", Host="127.0.0.1").status == 200


def test_a_condition_that_nothing_fits_says_why(server):
    found = server.post("/search", id=1, where="label = 'Red'").json()
    assert (found["results"], found["notes"]) == ([], ["No image has the `label` 'Red'; did you mean 'red'?"])
    assert server.post("/search", id=1, where="label = 'red'").json()["notes"] == []


def test_the_interface_is_described(server):
    document = server.get("/openapi.json").json()
    assert {"/health", "/embed", "/search", "/same"} <= set(document["paths"])
    form = document["paths"]["/search"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert {"image", "id", "k", "where", "within"} == set(form["properties"])
    page = server.get("/docs").content.decode()
    assert "POST /search" in page
    assert f"{server.address}/search" in page  # an example that can be copied
    assert "<script" not in page


def test_the_index_is_described(server, model):
    facts = server.get("/index").json()
    assert facts["labels"]["<b>bold"] == 6
    assert facts["attributes"] == {"year": list(range(2000, 2006))}
    rates = [one["rate"] for one in facts["thresholds"]]
    assert rates == sorted(rates)
    assert [one["distance"] for one in facts["thresholds"]] == [model.threshold(rate) for rate in rates]
    (certified,) = (one for one in facts["thresholds"] if one["certified"])
    assert (certified["rate"], certified["promise"]) == (0.01, model.match_threshold().promise)
    assert {one["measured_on"] for one in facts["thresholds"]} == {"validation classes"}


def test_without_a_certificate_there_are_no_thresholds(serve_app, index):
    model = StandInModel()
    model.certificate = None
    server = serve_app(make_app(model, index, None, with_tsne=False))
    assert server.get("/index").json()["thresholds"] == []
    answer = server.post("/search", id=1, within=0.01)
    assert answer.status == 400
    assert "has no certificate" in answer.json()["detail"]


def test_a_model_alone_embeds_but_does_not_search(serve_app, model, red):
    server = serve_app(make_app(model, None))
    assert server.get("/health").json()["index"] is None
    assert len(server.post("/embed", {"image": red}).json()["vectors"]) == 1
    answer = server.post("/search", {"image": red})
    assert answer.status == 409
    assert "no index" in answer.json()["detail"]
    assert b"This server has a model but no index" in server.get("/").content


def test_an_index_of_another_model_is_refused(index):
    with pytest.raises(UserError, match="holds vectors of the model"):
        make_app(StandInModel("other", digest="e" * 32), index)


def test_fifty_clients_at_once_get_their_own_answers(server, index, pictures):
    paths = sorted(pictures.rglob("*.png"))

    def ask(number):
        content = paths[number % len(paths)].read_bytes()
        answer = server.post("/search", {"image": (content, "image/png")}, k=1)
        return answer.status, answer.json()["results"][0]["path"]

    with ThreadPoolExecutor(50) as clients:
        answers = list(clients.map(ask, range(200)))
    expected = ["/".join(Path(paths[number % len(paths)]).parts[-2:]) for number in range(200)]
    assert answers == [(200, path) for path in expected]
    assert index.count == 24
