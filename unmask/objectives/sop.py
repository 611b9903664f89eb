"""Sentence-order prediction (ALBERT 1909.11942 §3.1), classified from the first token.

| row                     | segments          | label                                              |
|-------------------------|-------------------|----------------------------------------------------|
| [CLS] A [SEP] B [SEP]   | 0 … 0 0 1 … 1     | 0: B follows A in the document                     |
| [CLS] B [SEP] A [SEP]   | 0 … 0 0 1 … 1     | 1: the same two, swapped                           |

Both parts are always of one document, so that the topic gives nothing away. The rows are made by `text/rows.py`.
"""

from unmask.objectives.nsp import NSP


class SOP(NSP):
    name = "sop"
    terms = ("sop",)
    heads = ("sop",)
    rows = "order"
