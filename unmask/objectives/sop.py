"""Sentence-order prediction (ALBERT 1909.11942 §3.1), classified from the first token.

| row                     | segments          | label                                              |
|-------------------------|-------------------|----------------------------------------------------|
| [CLS] A [SEP] B [SEP]   | 0 … 0 0 1 … 1     | 0: B follows A in the document                     |
| [CLS] B [SEP] A [SEP]   | 0 … 0 0 1 … 1     | 1: the same two, swapped                           |

Both segments always come from one document, so the topic gives no hint. `text/rows.py` builds the rows.
"""

from unmask.objectives.nsp import NSP


class SOP(NSP):
    name = "sop"
    terms = ("sop",)
    heads = ("sop",)
    rows = "order"
