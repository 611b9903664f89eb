"""Hugging Face's generation pipelines: text generation, and text to text (summarization, translation)."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from unmask.server.json_io import StrictModel
from unmask.server.schemas import BuildResponse, PipelineRequest, Submit, Text, Texts

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor


class GenerationParameters(StrictModel):
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

    def settings(self) -> dict[str, Any]:
        """Return the given parameters. As in text-generation-inference, temperature, top_k or top_p turn on sampling."""
        parameters = self.model_dump(exclude_none=True, include=set(GenerationParameters.model_fields))
        sampling = parameters.keys() & {"temperature", "top_k", "top_p"}
        return ({"do_sample": True} if sampling else {}) | parameters


class TextGenerationParameters(GenerationParameters):
    return_full_text: bool = Field(default=False, description="Include the prompt.")
    details: Literal[False] | None = None
    decoder_input_details: Literal[False] | None = None
    watermark: Literal[False] | None = None


class TextGenerationRequest(PipelineRequest):
    inputs: Text | Texts = Field(examples=["the list is"])
    parameters: TextGenerationParameters = TextGenerationParameters()
    stream: Literal[False] | None = None


class GeneratedText(StrictModel):
    generated_text: str


async def text_generation(
    submit: Submit, name: str, predictor: "Predictor", body: TextGenerationRequest
) -> BuildResponse:
    results = await submit(name, "generate", body.items, **body.parameters.settings())
    full = body.parameters.return_full_text
    return lambda: [
        {"generated_text": r.text + r.generated_text if full and r.continues else r.generated_text} for r in results
    ]


class Text2TextParameters(StrictModel):
    generate_parameters: GenerationParameters = GenerationParameters()
    clean_up_tokenization_spaces: Literal[False] | None = None
    truncation: Literal["do_not_truncate"] | None = None


class Text2TextRequest(PipelineRequest):
    inputs: Text | Texts = Field(examples=["summarize: a long text"])
    parameters: Text2TextParameters = Text2TextParameters()


class Summary(StrictModel):
    summary_text: str


class Translation(StrictModel):
    translation_text: str


def text2text(key: str) -> Callable[..., Awaitable[BuildResponse]]:
    async def generate(submit: Submit, name: str, predictor: "Predictor", body: Text2TextRequest) -> BuildResponse:
        results = await submit(name, "generate", body.items, **body.parameters.generate_parameters.settings())
        return lambda: [{key: result.generated_text} for result in results]

    return generate
