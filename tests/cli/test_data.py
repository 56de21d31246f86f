"""Published data that do not ship: what is declared of them, fetching from an owner, and checking."""

from __future__ import annotations

import hashlib
from urllib.error import HTTPError, URLError

import pytest

from simsched.experiment import shipped_experiments
from simsched.experiment.published import PublishedData, PublishedFile, content_hash, find_published, published_data
from tests.pages import published

CONTENT = b"job,num_gpus\na,1\n"


def test_every_file_has_an_address_or_a_way_to_be_had_and_a_hash_or_a_word_on_it():
    for data in published_data().values():
        assert data.owner.startswith("https://"), data.name
        assert data.what, data.name
        assert data.licence, data.name
        assert data.how or not data.by_hand, data.name
        for file in data.files:
            assert file.sha256 is None or len(file.sha256) == 64, file.path
            assert file.sha256 or "no hash" in data.how, file.path


def test_data_name_experiments_that_ship_and_every_validation_is_named():
    needing = [name for data in published_data().values() for name in data.needed_by]
    assert {*needing} <= {*shipped_experiments()}
    assert {name for name in shipped_experiments() if name.startswith(("validation/", "gavel/"))} <= {*needing}


def test_a_hash_is_of_the_content_with_unix_line_ends():
    assert content_hash(CONTENT) == hashlib.sha256(CONTENT).hexdigest()
    assert content_hash(b"\xef\xbb\xbf" + CONTENT.replace(b"\n", b"\r\n")) == content_hash(CONTENT)
    assert content_hash(CONTENT[:-1]) != content_hash(CONTENT)


@pytest.fixture
def owner(monkeypatch, tmp_path):
    """Declare data of two files by address and one by hand; the owner is a folder that the test fills."""
    site = tmp_path / "site"
    site.mkdir()
    hashed = hashlib.sha256(CONTENT).hexdigest()
    files = tuple(PublishedFile(f"in/{name}", hashed, (site / name).as_uri()) for name in ("a.csv", "b.csv"))
    by_hand = PublishedFile("c", hashed, None)
    said = "jobs", "https://owner.example", "MIT", "", "made of the others", ()
    data = PublishedData("mine", *said, (*files, by_hand))
    monkeypatch.setattr("simsched.experiment.published.published_data", lambda: {"mine": data})
    return site


def test_get_fetches_keeps_and_tells_what_is_left(folder, owner):
    for name in ("a.csv", "b.csv"):
        (owner / name).write_bytes(CONTENT)
    done = published("get", "mine")
    assert done.exit_code == 0, done.output
    assert "data/mine: 2 of 3 files\n" in done.output
    assert "files without an address: made of the others" in done.output
    assert (folder / "data" / "mine" / "in" / "b.csv").read_bytes() == CONTENT
    (owner / "a.csv").unlink()
    (owner / "b.csv").unlink()
    assert published("get", "mine").exit_code == 0  # what is there and right is not fetched again
    assert published("check", "mine").exit_code == 0
    assert published("check", "mine").output == "mine: 2 right, 1 missing\n  missing: c\n"
    (folder / "data" / "mine" / "in" / "b.csv").write_bytes(b"spoilt")
    assert "differs: in/b.csv" in published("check", "mine").output
    assert published("check", "mine").exit_code == 1
    refused = published("get", "mine")
    assert "in/b.csv: exists but differs; remove it to fetch it again" in refused.output
    assert refused.exit_code == 1


def test_another_content_than_the_validations_is_not_kept(folder, owner):
    (owner / "a.csv").write_bytes(CONTENT)
    (owner / "b.csv").write_bytes(b"what the owner has today")
    done = published("get", "mine")
    assert done.exit_code == 1
    assert "the owner's file differs from the one that the validation used" in done.output
    assert [path.name for path in (folder / "data" / "mine" / "in").iterdir()] == ["a.csv"]


@pytest.mark.parametrize(
    ("error", "asked"),
    [(URLError("no network"), 1), (HTTPError("https://x", 404, "Not Found", None, None), 2)],  # type: ignore[arg-type]
)
def test_without_network_it_says_what_to_download_and_where_to_put_it(folder, owner, monkeypatch, error, asked):
    addresses = []

    def refuse(address, timeout):
        addresses.append(address)
        raise error

    monkeypatch.setattr("docs.data.urlopen", refuse)
    done = published("get", "mine", "--dir", "there")
    assert done.exit_code == 1
    assert len(addresses) == asked  # an owner that answers may have the other file
    assert f"there/mine/in/b.csv  from {(owner / 'b.csv').as_uri()}" in done.output


def test_list_tells_all_and_unknown_names_are_refused():
    assert [line.split()[0] for line in published("list").output.splitlines()] == [*published_data()]
    told = published("list", "helios").output
    assert "sha256 not known" in told
    assert find_published("helios").owner in told
    assert "did you mean 'helios'?" in published("get", "hellios").output
    assert "holds none of the data" in published("check", "--dir", "nowhere").output


def test_a_shipped_experiment_without_its_data_says_how_to_get_them(simsched):
    for name, data in (("validation/muri", "muri"), ("gavel/static", "gavel"), ("validation/rubick", "llm")):
        said = simsched("validate", name)
        assert said.exit_code == 2
        assert f"`python docs/data.py get {data}`" in said.stderr
    assert "docs/data.py" not in simsched("validate", "quickstart", "-o", "applications.path=traces").stderr
