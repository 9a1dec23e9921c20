"""URLs with further options.

Every backend takes ``max_payload``, ``fallback_poll``, ``busy_timeout`` and ``durability`` in the query of its
URL; the suite sets them where a test needs it.
"""


def with_options(url: str, **options: object) -> str:
    """Return *url* with *options* added to its query."""
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{url}{'&' if '?' in url else '?'}{query}"
