"""The data path beside proxies that read nothing, in one run: `python -m bench data-path`."""
