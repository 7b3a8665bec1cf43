"""Masked language modelling: a tiny BERT pre-trained from scratch on a made-up corpus."""

import os
import random
import tempfile

from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)

NOUNS = "cat dog bird river mountain child teacher engine garden window".split()
VERBS = "sees follows builds paints finds carries likes opens".split()
ADJECTIVES = "small old red quiet bright heavy wooden".split()

set_seed(0)
workdir = tempfile.mkdtemp()
vocab_file = os.path.join(workdir, "vocab.txt")
with open(vocab_file, "w") as f:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", ".", "and"] + NOUNS + VERBS + ADJECTIVES
    f.write("\n".join(words) + "\n")
tokenizer = BertTokenizerFast(vocab_file)

rng = random.Random(0)


def phrase():
    return f"{rng.choice(['the', 'a'])} {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"


corpus = []
for _ in range(128):
    text = f"{phrase()} {rng.choice(VERBS)} {phrase()}"
    if rng.random() < 0.5:
        text += f" and {rng.choice(VERBS)} {phrase()}"
    corpus.append(text + " .")
dataset = [tokenizer(text, truncation=True, max_length=32) for text in corpus]

model = BertForMaskedLM(
    BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
    )
)
args = TrainingArguments(
    output_dir=workdir,
    max_steps=5,
    per_device_train_batch_size=16,
    learning_rate=1e-3,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
)
collator = DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm_probability=0.15)
trainer = Trainer(model=model, args=args, train_dataset=dataset, data_collator=collator)
trainer.train()
for log in trainer.state.log_history:
    if "loss" in log:
        print(f"step {log['step']} mlm loss {float(log['loss']):.6f}")
