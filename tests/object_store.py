"""A real S3 server on loopback."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import boto3
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Iterator

_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@contextlib.contextmanager
def s3_bucket(name: str) -> Iterator[tuple[str, Any]]:
    """A bucket's address, with a place for what comes after its name, and a client to look into it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    kept = {each: os.environ.get(each) for each in _CREDENTIALS}
    os.environ.update(dict.fromkeys(kept, "testing"))
    host, port = server.get_host_and_port()
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    client.create_bucket(Bucket=name)
    yield f"s3://{name}/{{}}?scheme=http&region=us-east-1&endpoint_override={host}:{port}", client
    client.close()
    server.stop()
    for each, value in kept.items():
        os.environ.pop(each) if value is None else os.environ.update({each: value})
