"""Who may call the service, and what they may do there: keys, their scopes, and the events that tell of changes.

`keys` makes and revokes them, `secrets` is what they consist of, `scopes` what they permit; the service asks for them
in `eventkit.http.keys`.
"""

from ..operations.api_key import ApiKey
from ..operations.audit import AUDIT, Audited
from .keys import ApiKeys, NewKey
from .scopes import permits

__all__ = ["AUDIT", "ApiKey", "ApiKeys", "Audited", "NewKey", "permits"]
