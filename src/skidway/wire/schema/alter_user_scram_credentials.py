"""AlterUserScramCredentials (key 51), v0."""

from skidway.ports import Buffer
from skidway.wire.message import Message, array, blob, int8, int16, int32, string


class ScramCredentialDeletion(Message):
    name: str = string("0+")
    mechanism: int = int8("0+")


class ScramCredentialUpsertion(Message):
    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: Buffer = blob("0+")
    salted_password: Buffer = blob("0+")


class AlterUserScramCredentialsRequest(Message, key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, "0+")
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, "0+")


class AlterUserScramCredentialsResult(Message):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class AlterUserScramCredentialsResponse(Message, key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult, "0+")
