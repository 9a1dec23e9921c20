"""`ApiKeys`: the keys of a database, for whoever makes and revokes them."""

from collections.abc import Iterable
from typing import Any

from .. import arguments
from ..app.answers import then
from ..arguments import Duration
from ..codec import encode_json
from ..operations.api_key import AddApiKey, FindApiKey, ListApiKeys, RevokeApiKey, RotateApiKey
from ..operations.audit import Audited
from .scopes import scopes as checked_scopes
from .secrets import fresh_id, fresh_key, hash_of


class NewKey(str):
    """A key as its holder gets it, this once: it is stored nowhere.  Shown by `repr`, it is not."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<key {self.id}>"

    @property
    def id(self) -> str:
        """By what the key is told from others."""
        return self.split("_")[1]


class ApiKeys:
    """The keys of the kit's database; of an async kit every call is awaited.

    *by* is who does it, for the stream ``eventkit.audit``, to which every change is an event in the same transaction.
    """

    def __init__(self, kit: Any, *, by: str = "somebody") -> None:
        self._execute = kit._connection.execute
        self._by = arguments.name("caller", by)

    def add(
        self,
        name: str,
        scopes: Iterable[str],
        *,
        rate: float | None = None,
        burst: float | None = None,
        quota: int | None = None,
        expires: Duration | None = None,
        tx: Any = None,
    ) -> Any:
        """Make a key: the `NewKey`, which nobody can be told again.

        *rate* is in requests a second, of which *burst* may come at once; *quota* is in requests a day.
        """
        checked = checked_scopes(scopes)
        if burst is not None and rate is None:
            raise ValueError("burst says how deep the bucket of a rate is: say the rate= too")
        id = fresh_id()
        key = NewKey(fresh_key(id))
        operation = AddApiKey(
            id,
            arguments.name("key", name),
            hash_of(key),
            encode_json(checked),
            None if rate is None else arguments.positive("rate", rate),
            None if burst is None else arguments.burst(burst),
            None if quota is None else arguments.count("quota", quota, least=1),
            None if expires is None else arguments.milliseconds("expires", expires, least=1),
        )
        return then(self._audited(operation, "key.add", id, tx, name=name, scopes=checked), lambda added: key)

    def rotate(self, id: str, *, grace: Duration = 0, tx: Any = None) -> Any:
        """Give a key another secret: the `NewKey`, or None if there is no such key that lets anybody in.

        The secret that it had is good for *grace* seconds more.
        """
        key = NewKey(fresh_key(self._id(id)))
        operation = RotateApiKey(id, hash_of(key), arguments.milliseconds("grace", grace))
        return then(self._audited(operation, "key.rotate", id, tx), lambda rotated: key if rotated else None)

    def revoke(self, id: str, tx: Any = None) -> Any:
        """Let a key in no more; False if there is none that did.  Services notice within a second."""
        return self._audited(RevokeApiKey(self._id(id)), "key.revoke", id, tx)

    def get(self, id: str) -> Any:
        """A key by its id, as `HeldKey`; None if there is none."""
        return self._execute(FindApiKey(id))

    def list(self) -> Any:
        """All keys, with those that were revoked."""
        return self._execute(ListApiKeys())

    def _audited(self, operation: Any, action: str, id: str, tx: Any, **more: Any) -> Any:
        entry = encode_json({"action": action, "by": self._by, "key": id, **more})
        return self._execute(Audited(operation, entry), tx)

    @staticmethod
    def _id(id: Any) -> str:
        if not isinstance(id, str) or len(id) != 16 or not id.isalnum():
            raise ValueError("a key is named by its id, the sixteen characters after ek_ that eventkit key list shows")
        return id
