"""boto3 as it comes, and boto3 with the model of SQS as it was when it spoke the Query protocol."""

from functools import cache
from typing import Any

import boto3
import botocore.loaders
import botocore.session
from botocore.config import Config
from sqs_models import query_description

CONFIG = Config(retries={"max_attempts": 1}, read_timeout=60, connect_timeout=10)


class OldModels(botocore.loaders.Loader):  # type: ignore[misc]
    def load_service_model(self, service_name: str, type_name: str, api_version: Any = None) -> Any:
        if (service_name, type_name) == ("sqs", "service-2"):
            return query_description()
        return super().load_service_model(service_name, type_name, api_version)


@cache
def _session(query: bool) -> Any:
    session = botocore.session.Session()
    if query:
        loader = OldModels(include_default_search_paths=True)
        loader.search_paths.extend(session.get_component("data_loader").search_paths)
        session.register_component("data_loader", loader)
    return boto3.Session(botocore_session=session)


@cache
def boto_client(
    url: str, *, query: bool = False, key: str = "test", secret: str = "secret", region: str = "us-east-1"
) -> Any:
    return _session(query).client(
        "sqs",
        endpoint_url=url,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=CONFIG,
    )


def boto_resource(url: str) -> Any:
    return boto3.resource(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="secret",
        config=CONFIG,
    )
