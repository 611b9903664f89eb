"""Every family, one file each. A new one is its file and its line here."""

from unmask.model.families import bert, modernbert
from unmask.model.family import Family

# model_type, as config.json says it → family
FAMILIES: dict[str, Family] = {
    "bert": bert.FAMILY,
    "modernbert": modernbert.FAMILY,
}
