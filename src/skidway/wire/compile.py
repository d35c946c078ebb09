"""Description -> specialised encode and decode functions, built on first use per (message, version)."""

from typing import Any, Generic, Protocol, TypeVar, cast

from skidway.errors import UnsupportedVersion
from skidway.limits import DEFAULT_LIMITS
from skidway.ports import Buffer, FileSlice
from skidway.steps import Steps
from skidway.wire.decoding import decoder_source
from skidway.wire.encoding import encoder_source
from skidway.wire.message import Message

M = TypeVar("M", bound=Message)
M_co = TypeVar("M_co", bound=Message, covariant=True)
M_contra = TypeVar("M_contra", bound=Message, contravariant=True)


class Decoder(Protocol[M_co]):
    def __call__(self, buffer: Buffer, position: int = 0, budget: int = ...) -> tuple[M_co, int]:
        """The message that begins at `position`, and the position after it.

        Raises `DecodeError` on anything malformed, and when all arrays together have more elements than `budget`.
        Strings are copied out; `bytes` and `records` are slices of the buffer. What follows the message is not
        looked at.
        """
        ...


class Encoder(Protocol[M_contra]):
    def __call__(
        self, message: M_contra, parts: list[Buffer | FileSlice], errors: dict[int, int] | None = None, /
    ) -> None:
        """Append the message to `parts`; values of fields that the version does not have are left out. `errors` counts
        the error codes in it."""
        ...


class StepwiseDecoder(Protocol[M_co]):
    def __call__(self, buffer: Buffer, position: int, budget: int, held: list[Any]) -> Steps[tuple[M_co, int]]:
        """As a `Decoder`, a few hundred array elements at a time. `held` gets the message before it has any value: what
        was decoded before a refusal is in it, and can be freed in steps."""
        ...


class StepwiseEncoder(Protocol[M_contra]):
    def __call__(
        self, message: M_contra, parts: list[Buffer | FileSlice], errors: dict[int, int] | None = None, /
    ) -> Steps[None]:
        """As an `Encoder`, a few hundred array elements at a time."""
        ...


class Codec(Generic[M]):
    """Encoders and decoders of one message class, for all its versions."""

    __slots__ = ("_decoders", "_encoders", "_stepwise_decoders", "_stepwise_encoders", "message")

    def __init__(self, message: type[M]) -> None:
        self.message = message
        self._decoders: dict[int, Decoder[M]] = {}
        self._encoders: dict[int, Encoder[M]] = {}
        self._stepwise_decoders: dict[int, StepwiseDecoder[M]] = {}
        self._stepwise_encoders: dict[int, StepwiseEncoder[M]] = {}

    def decoder(self, version: int) -> Decoder[M]:
        known = self._decoders.get(version)
        if known is None:
            source = decoder_source(self.message, self._checked(version), DEFAULT_LIMITS.request_elements_max)
            known = cast(Decoder[M], source.function("decode", self._filename(version, "decoder")))
            self._decoders[version] = known
        return known

    def encoder(self, version: int) -> Encoder[M]:
        known = self._encoders.get(version)
        if known is None:
            source = encoder_source(self.message, self._checked(version))
            known = cast(Encoder[M], source.function("encode", self._filename(version, "encoder")))
            self._encoders[version] = known
        return known

    def stepwise_decoder(self, version: int) -> StepwiseDecoder[M]:
        known = self._stepwise_decoders.get(version)
        if known is None:
            budget = DEFAULT_LIMITS.request_elements_max
            source = decoder_source(self.message, self._checked(version), budget, stepwise=True)
            known = cast(StepwiseDecoder[M], source.function("decode", self._filename(version, "stepwise decoder")))
            self._stepwise_decoders[version] = known
        return known

    def stepwise_encoder(self, version: int) -> StepwiseEncoder[M]:
        known = self._stepwise_encoders.get(version)
        if known is None:
            source = encoder_source(self.message, self._checked(version), stepwise=True)
            known = cast(StepwiseEncoder[M], source.function("encode", self._filename(version, "stepwise encoder")))
            self._stepwise_encoders[version] = known
        return known

    def _checked(self, version: int) -> int:
        if version not in self.message.__versions__:
            raise UnsupportedVersion(f"{self.message.__name__} has no version {version}")
        return version

    def _filename(self, version: int, role: str) -> str:
        return f"<{role} of {self.message.__name__} v{version}>"
