"""Split of a labeled file, detected from its name: train, dev or test, in the spellings that datasets use."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from unmask.errors import UserError

SPLITS = ("train", "dev", "test")
WORDS = {
    "train": "train training trn trainval 训练 訓練",
    "dev": "dev devel develop development valid validate validation val vali eval evaluation 验证 驗證 校验 开发 開發",
    "test": "test testing tst heldout holdout 测试 測試 评测 評測",
}  # "held-out" is two words: see `split_of`
SPLIT_BY_WORD = {word: role for role, words in WORDS.items() for word in words.split()}
CHINESE = re.compile("|".join(word for word in SPLIT_BY_WORD if not word.isascii()))
ENDS = re.compile(r"(set|data|file|split)s?$")  # of testset, traindata
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")  # words of a name: trainData → train, Data


def split_of(name: str) -> str:
    """Return the split in the name of a file or folder, or "". If it contains several words, the last one decides.

    >>> [split_of(name) for name in ("sst2-train.tsv", "train_v2.csv", "x.dev.conll", "测试集.csv", "TestSet.csv", "contest.csv")]
    ['train', 'train', 'dev', 'test', 'test', '']
    >>> split_of("eng.testb"), split_of("held-out.csv"), split_of("valid2.jsonl.gz"), split_of("trainer.csv")
    ('test', 'test', 'dev', '')
    """
    joined = re.sub(r"(?i)(held|hold)[-_ ]out", r"\1out", name)
    splits = [(match.start(), SPLIT_BY_WORD[match[0]]) for match in CHINESE.finditer(joined)]
    for match in PARTS.finditer(joined):
        word = match[0].lower()
        word = "test" if word in ("testa", "testb") else word
        if split := SPLIT_BY_WORD.get(word) or SPLIT_BY_WORD.get(ENDS.sub("", word)):
            splits.append((match.start(), split))
    return max(splits)[1] if splits else ""


def assign_splits(files: Sequence[str], chosen_files: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Assign files to splits by their names, or else by their folders' names (train/1.csv, test/1.csv), or else to train.

    CoNLL calls its dev set testa and its test set testb. If no file is for training, the first one is used.

    >>> assign_splits(["a/train.csv", "a/my-test.csv"], {})
    {'train': ['a/train.csv'], 'dev': [], 'test': ['a/my-test.csv']}
    >>> assign_splits(["eng.train", "eng.testa", "eng.testb"], {})
    {'train': ['eng.train'], 'dev': ['eng.testa'], 'test': ['eng.testb']}
    """
    out = {split: list(chosen_files.get(split) or []) for split in SPLITS}
    folders = [Path(file).parent.name for file in files]
    folders_differ = len(set(folders)) > 1
    for file, folder in zip(files, folders):
        out[split_of(Path(file).name) or (split_of(folder) if folders_differ else "") or "train"].append(file)
    testa = [file for file in out["test"] if re.search(r"(?i)testa\b|testa[._-]", Path(file).name)]
    if testa and len(testa) < len(out["test"]) and not out["dev"]:
        out["test"] = [file for file in out["test"] if file not in testa]
        out["dev"] = testa
    if not out["train"]:
        nonempty = next((split for split in SPLITS if out[split]), None)
        if nonempty is None:
            raise UserError("no file given", hint="unmask doctor train.csv test.csv --task classify")
        out["train"].append(out[nonempty].pop(0))
    return out
