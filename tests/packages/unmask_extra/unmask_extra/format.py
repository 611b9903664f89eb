"""Reader for files with one LABEL|TEXT per line."""


def read(path):
    for line in path.read_text("utf-8").splitlines():
        label, _, text = line.partition("|")
        yield {"label": label, "text": text}
