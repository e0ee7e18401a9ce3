"""The `chat` stratum: conversations that the pairing's own model writes, seeded and batched.

Conversation text of good quality and free licence is scarce, and what a server's user sees is the model's own
answers: features that are always on there look rare in an encyclopedia. Questions are made from the corpus' own
documents; answers are sampled from the model. How they are swept is the sweep's business.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from tqdm import tqdm

from neuroscope.corpus import CHAT, SCHEMA, document_id
from neuroscope.errors import CorpusError
from neuroscope.sources import replace_atomically

SUBJECT = re.compile(
    r"^(?:In [^,]{3,30}, )?((?:The |An? )?[^.,;:()\n]{3,48}?)(?: \([^)]*\))? (?:is|was|are|were) "
)
ABOUT_SUBJECT = (
    "What is {subject}?",
    "Tell me about {subject}.",
    "Explain {subject} to a child of ten.",
    "Give me three facts about {subject}.",
    "Why does {subject} matter today?",
    "Write a short poem about {subject}.",
    "I have to give a talk on {subject}. How should I begin?",
    "Write an email to a friend that mentions {subject}.",
    "What questions would you ask an expert on {subject}?",
    "Make up a short story in which {subject} plays a part.",
)
ABOUT_CODE = (
    "What does this Python code do?\n\n{code}",
    "Write a comment for this code:\n\n{code}",
    "Rewrite this so that it is easier to read:\n\n{code}",
)
TASKS = (
    "Write a Python function that reverses a list.",
    "How do I read a file line by line in Python?",
    "What should I cook tonight with rice and tomatoes?",
    "I feel sad today. Can you cheer me up?",
    "Plan a weekend in a city that you like.",
    "What is 17 times 23? Show the steps.",
    "Translate 'good morning, my friend' into French.",
    "Write a SQL query that counts the orders of each customer.",
    "Summarise the plot of a well-known play.",
    "Give me some advice for a job interview.",
    "Write a polite letter of complaint about a late train.",
    "Explain the difference between a list and a tuple.",
    "How can I sleep better?",
    "What are the rules of chess?",
    "Tell me a joke about computers.",
    "Who are you and what can you do?",
)


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """What is generated; a change of any value gives other conversations."""

    documents: int = 150
    max_tokens: int = 160
    temperature: float = 0.8
    top_k: int = 50
    seed: int = 0
    batch: int = 32


def questions(documents: pl.DataFrame, plan: ChatPlan) -> list[str]:
    """First user turns, one per conversation, made from the corpus' documents in order of doc_id."""
    rng = np.random.default_rng(plan.seed)
    pools: list[Iterator[str]] = [
        (template.format(subject=subject) for template, subject in _subjects(documents, rng)),
        (
            template.format(code=text[:300].rsplit("\n", 1)[0])
            for template, text in _cycle(ABOUT_CODE, _texts(documents, "code"))
        ),
        (text.split("\n", 1)[0][:300] for text in _texts(documents, "conversation")),
        iter(TASKS),
    ]
    weights = np.array([0.6, 0.12, 0.16, 0.12])
    asked: list[str] = []
    while len(asked) < plan.documents and pools:
        which = rng.choice(len(pools), p=weights / weights.sum())
        question = next(pools[which], None)
        if question is None:
            del pools[which]
            weights = np.delete(weights, which)
        elif question.strip() and question not in asked:
            asked.append(question)
    return asked


def _texts(documents: pl.DataFrame, stratum: str) -> list[str]:
    return documents.filter(pl.col("stratum") == stratum)["text"].to_list()


def _cycle(templates: Sequence[str], texts: list[str]) -> Iterator[tuple[str, str]]:
    return ((templates[i % len(templates)], text) for i, text in enumerate(texts))


def _subjects(documents: pl.DataFrame, rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    for text in _texts(documents, "encyclopedia"):
        if match := SUBJECT.match(text):
            subject = match[1]
            if subject.startswith(("The ", "A ", "An ")):
                subject = subject[0].lower() + subject[1:]
            yield str(rng.choice(ABOUT_SUBJECT)), subject


def generate(
    model: Any, tokenizer: Any, documents: pl.DataFrame, plan: ChatPlan, out: Path, *, parts: Path
) -> pl.DataFrame:
    """Writes `plan.documents` conversations to `out`; each finished batch is kept in `parts`, so a restart goes on.

    A document's text is the JSON list of its messages. Raises CorpusError when the corpus gives no question.
    """
    asked = questions(documents, plan)
    if not asked:
        raise CorpusError(
            "No conversation can be begun: the corpus has no usable document. Set corpus.chat.documents to 0."
        )
    key = hashlib.sha256(
        json.dumps([asdict(plan), asked, model.config.to_json_string()]).encode()
    ).hexdigest()[:16]
    parts.mkdir(parents=True, exist_ok=True)
    rows = []
    starts = range(0, len(asked), plan.batch)
    with tqdm(total=len(asked), desc="chat", unit="conversation", mininterval=1) as bar:
        for start in starts:
            part = parts / f"{key}-{start:06d}.json"
            batch = asked[start : start + plan.batch]
            if not part.exists():
                with replace_atomically(part) as temporary:
                    temporary.write_text(json.dumps(_answers(model, tokenizer, batch, plan, start)))
            for question, answer in zip(batch, json.loads(part.read_text()), strict=True):
                messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
                text = json.dumps(messages, ensure_ascii=False)
                rows.append((document_id(text), CHAT, "chat", text))
            bar.update(len(batch))
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row").unique("doc_id").sort("doc_id")
    with replace_atomically(out) as temporary:
        frame.write_parquet(temporary)
    return frame


def _answers(model: Any, tokenizer: Any, asked: Sequence[str], plan: ChatPlan, start: int) -> list[str]:
    texts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        for question in asked
    ]
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    width = max(map(len, ids))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    padded = torch.tensor([[pad] * (width - len(row)) + row for row in ids], device=model.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids], device=model.device)
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(plan.seed * 1_000_003 + start)
        generated = model.generate(
            padded,
            attention_mask=mask,
            do_sample=True,
            temperature=plan.temperature,
            top_k=plan.top_k,
            max_new_tokens=plan.max_tokens,
            pad_token_id=pad,
        )
    return [tokenizer.decode(row, skip_special_tokens=True).strip() for row in generated[:, width:]]
