"""The settings as plain frozen records, one class a section of config.yaml.

Types, ranges and meanings of the fields stand in workflow/schemas/config.schema.yaml; values come from
`load`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CLAUDE = "claude-haiku-4-5-20251001"
"""The model that `claude` stands for: the specification's, cheap enough for every feature of an SAE."""


@dataclass(frozen=True, slots=True)
class SaeSource:
    """Where a pairing's sparse autoencoder is and how its file is read."""

    source: str
    path: str | None
    format: str
    input_norm: str | None
    width: int | None
    """Number of features; None when another source was given and neither the user nor its path says one."""

    @property
    def uri(self) -> str:
        """One name of the file, for `sources.resolve`."""
        if self.path is None:
            return self.source
        base, at, revision = (
            self.source.partition("@") if self.source.startswith("hf://") else (self.source, "", "")
        )
        return f"{base.rstrip('/')}/{self.path}{at}{revision}"


@dataclass(frozen=True, slots=True)
class Neuronpedia:
    """A pairing's names on Neuronpedia."""

    model_id: str
    sae_id: str


@dataclass(frozen=True, slots=True)
class Published:
    """Figures that a release states."""

    l0: float | None = None


@dataclass(frozen=True, slots=True)
class Pairing:
    """A model and the sparse autoencoder read on one of its layers."""

    name: str
    model: str
    sae: SaeSource
    layer: int
    dtype: str
    neuronpedia: Neuronpedia | None
    published: Published | None
    licence: str
    description: str

    @property
    def export_name(self) -> str:
        """How the original specification names a pairing's files in the cache: {model}_{sae}."""
        if self.neuronpedia is not None:
            return f"{self.neuronpedia.model_id}_{self.neuronpedia.sae_id}"
        return f"{self.name}_layer{self.layer}"


@dataclass(frozen=True, slots=True)
class CorpusSource:
    """One source of documents; `source` is a name for `sources.resolve`, or `stdlib:`."""

    name: str
    stratum: str
    source: str
    format: str = "files"
    max_documents: int | None = None
    share: float = 1.0
    licence: str = "unknown"


@dataclass(frozen=True, slots=True)
class ChatCorpus:
    """Conversations that the pairing's own model writes."""

    documents: int
    max_tokens: int
    temperature: float
    top_k: int
    seed: int
    batch: int
    share: float


@dataclass(frozen=True, slots=True)
class Corpus:
    path: str | None
    """The user's own folder or file; replaces `sources` and `chat`."""
    sources: tuple[CorpusSource, ...]
    chat: ChatCorpus | None
    document_chars: int
    seed: int


@dataclass(frozen=True, slots=True)
class Calibration:
    samples: int


@dataclass(frozen=True, slots=True)
class Verify:
    tokens: int


@dataclass(frozen=True, slots=True)
class Examples:
    samples: int
    per_feature: int
    sampled: int
    held_out: int
    pool: int


@dataclass(frozen=True, slots=True)
class Sweep:
    window: int
    batch: int
    chunk_documents: int
    shards: int
    bos: bool
    threads: int
    outlier_norm: float


@dataclass(frozen=True, slots=True)
class Training:
    tokens: int
    width: int
    steps: int
    batch: int
    k: int
    lr: float
    warmup: int
    decay: float
    aux_k: int
    aux_weight: float
    dead_tokens: int
    held_out: float
    seed: int


@dataclass(frozen=True, slots=True)
class Prices:
    input: float | None
    output: float | None


@dataclass(frozen=True, slots=True)
class Labels:
    priority: tuple[str, ...]
    labeler: str
    model: str | None
    base_url: str | None
    api_key_env: str
    file: str | None
    examples_per_feature: int
    concurrency: int
    batch: bool
    max_cost_usd: float
    prices: Prices
    score: bool
    scorer: str | None
    windows_per_call: int | None
    score_methods: tuple[str, ...]
    negatives: int
    near_misses: int
    min_score: float
    replace_low: bool

    @property
    def source(self) -> str:
        """Who the labels are by, as in `priority`: the labeler, and claude for every Claude model."""
        return "claude" if self.labeler.startswith("claude-") else self.labeler

    @property
    def judge(self) -> str | None:
        """Who judges labels in words: a Claude model, or openai; None for nobody."""
        who = self.scorer or self.labeler
        return who if who == "openai" or who.startswith("claude-") else None


@dataclass(frozen=True, slots=True)
class Publication:
    """Where Neuronpedia's bulk data is, and how much of it is taken."""

    base_url: str
    examples: int


@dataclass(frozen=True, slots=True)
class RankingDefaults:
    filter: str
    threshold: float
    top_k: int
    stratum: str
    stats: str | None


@dataclass(frozen=True, slots=True)
class Serve:
    host: str
    port: int
    features_port: int
    ring: int
    queue: int
    max_streams: int
    api_key_env: str
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    heartbeat_s: float
    drain_s: float
    hang_s: float
    results_poll_s: float
    decoder: bool
    log_format: str
    log_level: str
    log_prompts: bool
    decode_step: str
    prefix_cache_mb: int


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that config.yaml, the pairing and the flags settle, with no value left open."""

    root: Path
    """The repository: relative paths start here."""
    pairing: Pairing
    device: str
    backend: str
    """What runs the model that answers: torch or llamacpp."""
    quantization: str
    """none, int8, int4, or a type of GGUF files as in `gguf_types.FILE_TYPES`."""
    results: Path
    """Absolute folder of this pairing's results."""
    corpus: Corpus
    calibration: Calibration
    examples: Examples
    sweep: Sweep
    training: Training
    verify: Verify
    labels: Labels
    neuronpedia: Publication
    ranking: RankingDefaults
    serve: Serve

    @property
    def torch_quantization(self) -> str:
        """Of the torch model that the pipeline measures with: GGUF types are llama.cpp's alone."""
        return self.quantization if self.backend == "torch" else "none"

    @property
    def arithmetic(self) -> str:
        """What the answers are computed with, in a word: none, int8, int4, a GGUF type, or gguf for a file as it is."""
        return "gguf" if self.backend == "llamacpp" and self.quantization == "none" else self.quantization
