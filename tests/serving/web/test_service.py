"""What the server does, called without a web around it."""

import pytest
from PIL import Image

from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.web.service import SIDES, Service, item_of, short_path
from ccp_dml.serving.web.uploads import Refusal, Sent


@pytest.fixture
def service(index_folder, model):
    return Service(model, SearchIndex.open(index_folder), with_tsne=False)


def sent(*files, **fields):
    return Sent([("image", file.read_bytes(), "image/png") for file in files], fields)


def refused(status, work, *arguments):
    with pytest.raises(Refusal) as refusal:
        work(*arguments)
    assert refusal.value.status_code == status
    return refusal.value.detail


def test_a_picture_and_an_indexed_image_find_the_same_neighbours(service, pictures):
    by_picture = service.search(sent(pictures / "red" / "0.png", k=4))["results"]
    by_id = service.search(sent(id=by_picture[0]["id"], k=3))
    assert by_id["query"]["path"] == "red/0.png"
    assert [hit["id"] for hit in by_id["results"]] == [hit["id"] for hit in by_picture[1:]]


def test_two_pictures_are_compared_as_the_model_does(service, model, pictures):
    one, two = pictures / "red" / "0.png", pictures / "blue" / "0.png"
    expected = model.same(Image.open(one), Image.open(two), 0.1)
    answer = service.same(sent(one, two, false_match_rate="0.1"))
    assert answer == {
        "same": expected.same,
        "distance": expected.distance,
        "threshold": expected.threshold,
        "promise": expected.promise,
    }
    assert "1 came" in refused(400, service.same, sent(one))


def test_ids_and_sizes_that_do_not_exist_are_refused(service):
    gallery = service.latest().gallery
    assert item_of(gallery, 1).id == 1
    for number in (0, -1, 25, 1 << 70):
        assert f"no image with the id {number}" in refused(404, item_of, gallery, number)
    assert "small or large" in refused(404, service.image, 1, "huge")
    for size in SIDES:
        assert service.image(1, size).startswith(b"RIFF")


def test_a_model_alone_has_nothing_to_search(model):
    alone = Service(model, None, with_tsne=False)
    assert alone.health()["index"] is None
    assert not alone.has_gallery
    for work in (alone.facts, lambda: alone.overview, lambda: alone.search(sent(id=1))):
        assert "no index" in refused(409, work)


def test_paths_do_not_tell_where_files_are_stored():
    assert short_path("/home/somebody/photos/wren/1.jpg") == "wren/1.jpg"
