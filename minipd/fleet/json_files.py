"""Reading JSON that someone else wrote: whatever is wrong with the file is one `ValueError`.

Standard library only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MAX_WORDS = 80  # of the parser's complaint


class JsonFileError(ValueError):
    """A file that is no JSON; the message names it and says why, the caller adds the remedy."""


def read_json(path: Path) -> Any:
    """The value in a file, with or without a byte order mark; raises `JsonFileError`."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe may never end
            raise JsonFileError(f"{path} is no ordinary file")
        return json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise JsonFileError(f"{path} cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise JsonFileError(f"{path} is no text file") from None
    except RecursionError:
        raise JsonFileError(f"{path} is no JSON (nested too deeply)") from None
    except JsonFileError:
        raise
    except ValueError as error:
        raise JsonFileError(f"{path} is no JSON ({str(error)[:MAX_WORDS]})") from None
