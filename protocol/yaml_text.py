"""YAML whose scalars are the text that is written: `007` and `no` are names, and the reader's model makes numbers.

For files of trials and proposals. The proxy's configuration has a stricter reader of its own.
"""

from typing import Any

import yaml

_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Makes text, lists and dicts alone."""


class YamlTextError(ValueError):
    """A file is no YAML; the text is one line that names the place."""


def read_yaml_text(content: bytes) -> Any:
    """Return the content of a file in YAML: each name and value as text.

    Raises:
        YamlTextError: If it is no YAML.
    """
    try:
        return yaml.load(content, Loader=_Loader)  # noqa: S506 - see above
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlTextError(f"no valid YAML: {' '.join(str(error).split())}") from error
