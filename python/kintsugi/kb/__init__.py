"""The knowledge base: what break messages mean, what helps, and what does not; every rate was executed.

Entries are JSON files in `entries/` (schema: `schema.json`, made from `model.py`), their reproducers are small programs
in `reproducers/`. `store` reads them, `matching` finds them in logs, `verify` runs the reproducers and writes what came
of it into the entries, `render` and `graph` show them. Nothing of this is imported by `import kintsugi`.
"""

from .model import Entry
from .store import KnowledgeBase, load

__all__ = ["Entry", "KnowledgeBase", "load"]
