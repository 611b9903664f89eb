"""Hugging Face's tasks that write: continuing a text, and what encoder–decoders make of one."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from unmask.server.json_io import Strict
from unmask.server.schemas import Ask, Make, Request, Text, Texts

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor


class GenerateSettings(Strict):
    max_new_tokens: int | None = Field(default=None, ge=1, le=100_000)
    min_new_tokens: int | None = Field(default=None, ge=0, le=100_000)
    max_length: int | None = Field(default=None, ge=1, le=100_000)
    num_beams: int | None = Field(default=None, ge=1, le=64)
    length_penalty: float | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = Field(default=None, ge=0, le=100_000)
    seed: int | None = Field(default=None, ge=0, lt=1 << 63)


def settings_of(body: GenerateSettings) -> dict[str, Any]:
    """What was given; as in text-generation-inference, a temperature, top_k or top_p means that tokens are drawn."""
    given = body.model_dump(exclude_none=True)
    drawn = given.keys() & {"temperature", "top_k", "top_p"}
    return given | ({"do_sample": True} if drawn and "do_sample" not in given else {})


class TextSettings(GenerateSettings):
    return_full_text: bool = Field(default=False, description="With the prompt before it.")
    details: Literal[False] | None = None
    decoder_input_details: Literal[False] | None = None
    watermark: Literal[False] | None = None


class TextGeneration(Request):
    inputs: Text | Texts = Field(examples=["the list is"])
    parameters: TextSettings = TextSettings()
    stream: Literal[False] | None = None


class Written(Strict):
    generated_text: str


async def text_generation(ask: Ask, name: str, predictor: "Predictor", body: TextGeneration) -> Make:
    given = settings_of(body.parameters)
    full = given.pop("return_full_text")
    for key in ("details", "decoder_input_details", "watermark"):
        given.pop(key, None)
    found = await ask(name, "generate", body.listed, **given)
    return lambda: [
        {"generated_text": a.text + a.generated_text if full and a.continues else a.generated_text} for a in found
    ]


class RewriteSettings(Strict):
    generate_parameters: GenerateSettings = GenerateSettings()
    clean_up_tokenization_spaces: Literal[False] | None = None
    truncation: Literal["do_not_truncate"] | None = None


class Rewrite(Request):
    inputs: Text | Texts = Field(examples=["summarize: a long text"])
    parameters: RewriteSettings = RewriteSettings()


class Summary(Strict):
    summary_text: str


class Translation(Strict):
    translation_text: str


def rewriting(key: str) -> Callable[..., Awaitable[Make]]:
    async def rewrite(ask: Ask, name: str, predictor: "Predictor", body: Rewrite) -> Make:
        given = settings_of(body.parameters.generate_parameters)
        found = await ask(name, "generate", body.listed, **given)
        return lambda: [{key: a.generated_text} for a in found]

    return rewrite
