"""Asks the API server who a caller is (TokenReview) and what the caller may read (SubjectAccessReview).

Only tokens for the view's own audience are taken (``access.AUDIENCE``): a caller has no reason to show one with which
another could use the API server in its name.
So a view shows what `kubectl get` would show to the same caller. Answers hold for some seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Hashable
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from flowcore.api.kinds import POLICY, QUEUE
from thalweg_view.callers.access import AUDIENCE, Caller
from thalweg_view.callers.view_limits import DEFAULT_LIMITS, ViewLimits
from thalweg_view.compute_process.messages import Need
from thalweg_view.errors import RequestRefused, ReviewFailed

#: Posts a JSON body to a path of the API server and returns the answer; raises ``ReviewFailed``.
Post = Callable[[str, bytes], Awaitable[bytes]]

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: Seconds for which an answer of the API server holds. A token that is revoked is of use for so long.
HOLDS: Final = 10.0
_MOST_ANSWERS = 20_000
_RESOURCES: Final[dict[Need, tuple[str, str]]] = {
    "nodes": ("", "nodes"),
    "policies": (POLICY.group, POLICY.plural),
    "queues": (QUEUE.group, QUEUE.plural),
}
_T = TypeVar("_T")


class _User(msgspec.Struct, omit_defaults=True):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    audiences: list[str] = []
    user: _User = msgspec.field(default_factory=_User)


class _TokenReview(msgspec.Struct):
    status: _TokenStatus


class _AccessStatus(msgspec.Struct):
    allowed: bool


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


class ReviewedAccess:
    """Access as TokenReview and SubjectAccessReview decide it.

    Args:
        post: asks the API server.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self, post: Post, limits: ViewLimits = DEFAULT_LIMITS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._post, self._limits = post, limits
        #: Digest of a token -> its caller; None: the token is unknown.
        self._callers: _Answers[Caller | None] = _Answers(clock)
        self._allowed: _Answers[bool] = _Answers(clock)
        self._slots, self._strangers = asyncio.Semaphore(limits.reviews), asyncio.Semaphore(max(1, limits.reviews // 4))
        #: By the callers' shares.
        self._passes: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        #: Reviews of tokens that nobody has shown before, under way and waiting.
        self._new = 0

    async def caller(self, token: str) -> Caller:
        """Whose token this is."""
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        # Strangers may show any number of tokens: they wait for each other, and nobody else waits for them.
        known = self._callers.last(digest) is not None
        caller = await self._callers.get(
            digest, lambda: self._review_token(token) if known else self._review_new(token)
        )
        if caller is None:
            raise RequestRefused(
                401,
                "the API server does not accept the token: it is wrong, expired or revoked, or not for the audience "
                f"{AUDIENCE}. `kubectl create token ACCOUNT --audience {AUDIENCE}` makes one",
            )
        return caller

    async def may_list(self, caller: Caller, kind: Need) -> bool:
        """Whether the caller may list this kind in the whole cluster."""
        group, resource = _RESOURCES[kind]
        return await self._may_list(caller, group, resource, "")

    async def namespaces(self, caller: Caller, known: Collection[str]) -> list[str] | None:
        """Namespaces whose pods the caller may list; None: all."""
        if await self._may_list(caller, "", "pods", ""):
            return None
        if len(known) > self._limits.namespaces:
            raise RequestRefused(
                400,
                f"{caller.name} may not list pods in all namespaces, and there are {len(known)} of them: name one with "
                "the parameter namespace",
            )
        names = sorted(known)
        # A caller without rights costs a question for each namespace: callers with some need not wait for all of them.
        turns = self._passes.setdefault(caller.share, asyncio.Semaphore(max(1, self._limits.reviews // 4)))

        async def may_list_pods(name: str) -> bool:
            async with turns:
                return await self._may_list(caller, "", "pods", name)

        allowed = await asyncio.gather(*map(may_list_pods, names))
        return [name for name, may in zip(names, allowed, strict=True) if may]

    async def _may_list(self, caller: Caller, group: str, resource: str, namespace: str) -> bool:
        attributes = {"verb": "list", "group": group, "resource": resource, "namespace": namespace}
        key = (caller.identity, group, resource, namespace)
        return await self._allowed.get(key, lambda: self._review_access(caller, attributes))

    async def _review_new(self, token: str) -> Caller | None:
        if self._new >= self._limits.reviews:
            raise RequestRefused(429, "too many unknown tokens are being checked; ask again", retry_after=1)
        self._new += 1
        try:
            async with self._strangers:
                return await self._review_token(token)
        finally:
            self._new -= 1

    async def _review_token(self, token: str) -> Caller | None:
        spec = {"token": token, "audiences": [AUDIENCE]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        async with self._slots:
            status = (await self._ask(TOKEN_REVIEWS, body, _TokenReview)).status
        # An authenticator that knows no audiences says none: then the token may be one of the API server's own.
        if not status.authenticated or AUDIENCE not in status.audiences or not status.user.username:
            return None
        return Caller(status.user.username, msgspec.json.encode(status.user, order="sorted"))

    async def _review_access(self, caller: Caller, attributes: dict[str, str]) -> bool:
        user = msgspec.json.decode(caller.identity, type=_User)
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "resourceAttributes": attributes,
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        async with self._slots:
            return (await self._ask(ACCESS_REVIEWS, body, _AccessReview)).status.allowed

    async def _ask(self, path: str, body: dict[str, Any], shape: type[_T]) -> _T:
        try:
            return msgspec.json.decode(await self._post(path, msgspec.json.encode(body)), type=shape)
        except (ReviewFailed, msgspec.DecodeError) as error:
            problem = f"the API server did not say who asks or what they may read: {error}"
            raise RequestRefused(503, problem, retry_after=1) from error


class _Answers(Generic[_T]):
    """The API server's last answers; each is asked for once, however many wait for it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[Hashable, tuple[float, asyncio.Task[_T]]] = OrderedDict()

    def last(self, key: Hashable) -> _T | None:
        """The last answer, however old; None: there is none."""
        _, task = self._known.get(key, (0.0, None))
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[_T]]) -> _T:
        """The answer; an error is not kept."""
        now = self._clock()
        since, task = self._known.get(key, (0.0, None))
        if task is None or (task.done() and (now - since > HOLDS or task.cancelled() or task.exception() is not None)):
            task = asyncio.ensure_future(ask())
            self._known[key] = (now, task)
            self._known.move_to_end(key)
            while len(self._known) > _MOST_ANSWERS:
                self._known.popitem(last=False)
        # One caller that goes must not end it for the others.
        return await asyncio.shield(task)
