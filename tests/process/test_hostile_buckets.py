"""A store that answers what S3 never would, to a real worker that reads a batch's input from it."""

from __future__ import annotations

import http.server
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.process.test_batches_in_buckets import QUICK, batch, keys_for
from tests.web import serving

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tests.process.harness import Place

DATA = b'{"x": [1.0]}\n'


def a_store(*keys: str, endless: bool = False) -> AbstractContextManager[int]:
    """Lists these keys whatever it is asked for, with one body for each; an endless one has a next page for ever."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            if "list-type" in parse_qs(asked.query):
                entries = "".join(
                    f"<Contents><Key>{escape(key)}</Key><ETag>1</ETag><Size>{len(DATA)}</Size></Contents>" for key in keys
                )
                more = "<NextContinuationToken>x</NextContinuationToken>" if endless else ""
                self._tell(200, f"<ListBucketResult>{entries}{more}</ListBucketResult>".encode())
            else:
                # The folder itself is no object.
                self._tell(404 if asked.path.endswith("/rows") else 200, DATA)

        def _tell(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", "1")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return serving(Handler)


@pytest.mark.parametrize("where", ["absolute", "above", "beside", "deeper"])
def test_no_key_is_written_outside_of_the_inputs_folder(place: Place, where: str) -> None:
    """A listing names the files that the worker writes."""
    victim = place.root / "victim"
    victim.write_bytes(b"mine")
    above = "../" * 30
    key = {"absolute": str(victim), "above": f"rows/{above}{str(victim)[1:]}", "beside": "other/x", "deeper": "rows/a/b"}[where]
    with a_store(key) as port:
        config = batch(place, "s3://models/rows", f"file://{place.root / 'out'}")
        ended = place.start(config, patches=QUICK, variables=keys_for(place, port)).ended()

    assert victim.read_bytes() == b"mine"
    assert ended.said.reason == "InputUnreachable" and "which is not in it" in (ended.said.message or "")


def test_a_listing_of_empty_pages_has_an_end(place: Place) -> None:
    with a_store(endless=True) as port:
        config = batch(place, "s3://models/rows", f"file://{place.root / 'out'}")
        patches = {**QUICK, "inference_worker.stores.bucket:_PAGES_AT_MOST": 5}
        ended = place.start(config, patches=patches, variables=keys_for(place, port)).ended()

    assert ended.said.outcome == "Failed" and "more than" in (ended.said.message or "")
