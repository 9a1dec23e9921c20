"""API keys of the HTTP service, their scopes, and the audit events of changes.

`keys` adds, rotates and revokes keys; `scopes` defines their rights; `eventkit.http.keys` checks them on each request.
"""

from ..operations.admin import AUDIT, ApiKey, Audited
from .keys import ApiKeys, NewKey
from .scopes import permits

__all__ = ["AUDIT", "ApiKey", "ApiKeys", "Audited", "NewKey", "permits"]
