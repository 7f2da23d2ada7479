"""Makes a tiny Llama that vLLM can serve: `make_model.py FOLDER`.

Two layers, a byte-level BPE tokenizer and a ChatML template, trained for a minute on sentences made here from a fixed seed, so that it
writes words, code, Chinese and emoji and not noise: a model that writes noise writes tokens that no tokenizer would choose, and only
token ids could carry such an answer on. It knows nothing, and two makings need not give the same bytes.

Run by `scripts/try-vllm` in the environment of `setup`. Nothing is downloaded.
"""

import random
import sys
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

SEED = 7
VOCABULARY = 1200
# Tokens a sample, samples a step, steps.
LENGTH, BATCH, STEPS = 320, 8, 260

START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Words with their blank in front, digits one by one, punctuation, line breaks: as the large models of this shape split.
SPLIT = r"'s|'t|'re|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

NAMES = ["The keeper", "A gull", "The old ship", "Her brother", "The storm", "A child", "The lamp", "The island"]
DEEDS = ["waited for", "remembered", "called to", "looked after", "turned away from", "painted", "could not find", "dreamt of"]
THINGS = ["the grey sea", "the last boat", "a letter", "the broken stairs", "the other shore", "seven candles", "the harbour", "the light"]
ENDS = [" at dawn", " without a word", ", as every year", " until the tide came", "; nobody knew why", " and smiled"]
CHINESE = ["火車", "車站", "乘客", "窗外", "山谷", "清晨", "慢慢地", "穿過", "看見", "想起", "遠方", "橋樑"]
GREETINGS = ["Hello 👋", "Grüß Gott 🏔️", "नमस्ते 🙏", "こんにちは 🌸", "Здравствуйте ☀️", "¡Buenos días! 🎉", "Γειά σου 🌊", "안녕하세요 🚂"]
VARIABLES = ["row", "column", "total", "value", "index"]


def prose(rng):
    sentences = [f"{rng.choice(NAMES)} {rng.choice(DEEDS)} {rng.choice(THINGS)}{rng.choice(ENDS)}." for _ in range(rng.randint(8, 16))]
    return " ".join(sentences)


def chinese(rng):
    return "".join("".join(rng.choices(CHINESE, k=rng.randint(3, 6))) + rng.choice("，。！") for _ in range(rng.randint(12, 20)))


def code(rng):
    outer, inner = rng.sample(VARIABLES, 2)
    lines = [f"def {rng.choice(['table', 'walk', 'count'])}(n):", "    result = []"]
    for _ in range(rng.randint(2, 4)):
        lines += [f"    for {outer} in range(n):", f"        for {inner} in range({rng.randint(2, 9)}):"]
        lines += [f"            if {outer} > {inner}:", f"                result.append({outer} * {inner})", ""]
    return "```python\n" + "\n".join([*lines, "    return result"]) + "\n```"


def mixed(rng):
    return "\n".join(f"{number}. {greeting}" for number, greeting in enumerate(rng.choices(GREETINGS, k=rng.randint(8, 14)), 1))


KINDS = [
    ("Tell a short story about a lighthouse. #kind=prose", prose),
    ("用中文寫一段關於火車的文字。 #kind=cjk", chinese),
    ("Write a Python function with nested loops. #kind=code", code),
    ("Say something in six languages, with emoji. #kind=mixed", mixed),
]


def samples(rng, count):
    """Dialogues, each with what the template makes of it."""
    for _ in range(count):
        prompt, answer = rng.choice(KINDS)
        yield f"{START}user\n{prompt}{END}\n{START}assistant\n{answer(rng)}{END}\n"


def tokenizer(texts):
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=END, pad_token=PAD, chat_template=TEMPLATE)


def model(vocabulary):
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=vocabulary.eos_token_id,
            pad_token_id=vocabulary.pad_token_id,
        )
    )


def train(llama, vocabulary, texts):
    encoded = [vocabulary(text)["input_ids"][:LENGTH] for text in texts]
    optimizer = torch.optim.AdamW(llama.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS)
    rng = random.Random(SEED)
    for step in range(STEPS):
        batch = vocabulary.pad({"input_ids": rng.sample(encoded, BATCH)}, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        loss = llama(**batch, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(llama.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"make_model: step {step}, loss {loss.item():.2f}", file=sys.stderr)


def main(folder):
    logging.disable_progress_bar()
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    texts = list(samples(random.Random(SEED), 1500))
    vocabulary = tokenizer(texts)
    llama = model(vocabulary)
    train(llama, vocabulary, texts)
    llama.save_pretrained(folder)
    vocabulary.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
