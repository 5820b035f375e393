"""Where the API server is and how to log in there: read from a kubeconfig or the pod's service account, and read again.

Certificates and tokens are replaced while the operator runs. Their files are looked at every few seconds; when one of
them changed, everything is read again and new connections use it. Requests under way are not disturbed. What cannot be
read, such as a key without its new certificate, leaves the old ones in force until the next look.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from thalweg_operator.errors import ConnectionLost
from thalweg_operator.outages import Outages

#: Seconds between two looks at the files.
_LOOK = 5.0
#: Seconds that requests wait for what is read again, and that it may take. An exec plug-in may be slow, or hang; what
#: was read before serves meanwhile.
_WAIT, _LONGEST = 2.0, 60.0
#: How long before its end a token of an exec plug-in is replaced.
_EARLY = timedelta(minutes=1)

_Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Read:
    """What one reading gave.

    Attributes:
        configuration: kubernetes-asyncio's Configuration.
        stamp: path, time of change and inode of each file that was read.
        expires: when the token of an exec plug-in ends.
    """

    configuration: Any
    tls: ssl.SSLContext
    stamp: _Stamp
    expires: datetime | None


class Credentials:
    """See the module. Make it with ``read_credentials``.

    Attributes:
        context: of the kubeconfig; "" for the service account. It stays when the file names another current context.
        reloads: how often something new was read.
    """

    def __init__(self, kubeconfig: Path | None, context: str, read: _Read) -> None:
        self._kubeconfig, self.context, self._read = kubeconfig, context, read
        self._next_look = self._wait_until = 0.0
        self._reading: asyncio.Task[None] | None = None
        self.reloads = 0

    @property
    def configuration(self) -> Any:
        """kubernetes-asyncio's Configuration."""
        return self._read.configuration

    @property
    def tls(self) -> ssl.SSLContext:
        """For connections to the API server."""
        return self._read.tls

    async def refresh(self, outages: Outages) -> None:
        """Reads again what changed, if a look is due."""
        now = asyncio.get_running_loop().time()
        if self._reading is None:
            if now < self._next_look:
                return
            self._next_look, self._wait_until = now + _LOOK, now + _WAIT
            old = self._read
            ends = old.expires is not None and datetime.now(UTC) > old.expires - _EARLY
            if _stamp([path for path, *_ in old.stamp]) == old.stamp and not ends:
                return
            self._reading = asyncio.create_task(self._read_again(old, outages))
        if now < self._wait_until:
            await asyncio.wait({self._reading}, timeout=self._wait_until - now)

    async def _read_again(self, old: _Read, outages: Outages) -> None:
        try:
            async with asyncio.timeout(_LONGEST):
                new = await _read(self._kubeconfig, self.context or None)
        except (ConnectionLost, TimeoutError) as error:
            problem = str(error) or f"reading them takes longer than {_LONGEST:g} s"
            outages.failed("credentials", "not read", f"{problem}; the ones read before stay in use")
            return
        finally:
            self._reading = None
        if new.configuration.host != old.configuration.host:
            problem = f"the kubeconfig names another server now: {new.configuration.host}; restart to use it"
            outages.failed("credentials", "another server", problem)
            return
        self._read = new
        self.reloads += 1
        outages.over("credentials")


async def read_credentials(kubeconfig: Path | None, context: str | None = None) -> Credentials:
    """Reads a kubeconfig, or the pod's service account when there is none.

    Args:
        kubeconfig: one path, or several with the path separator between them, as kubectl takes them.
        context: of the kubeconfig; None: its current context.

    Raises:
        ConnectionLost: it cannot be used; the message says why.
    """
    if kubeconfig is not None and context is None:
        context = _current_context(_files(kubeconfig))
    return Credentials(kubeconfig, context or "", await _read(kubeconfig, context))


async def _read(kubeconfig: Path | None, context: str | None) -> _Read:
    # Half a second and 50 MB that other commands need not pay for.
    from kubernetes_asyncio import config  # noqa: PLC0415
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415

    configuration = Configuration()
    expires = None
    files = [] if kubeconfig is None else _files(kubeconfig)
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            files += _token_files(files, context)
            joined = os.pathsep.join(map(str, _files(kubeconfig)))
            loader = await config.load_kube_config(joined, context, configuration)
            expires = getattr(loader, "exec_plugin_expiry", None)
        paths = [configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file, *map(str, files)]
        # Before the files are read: a change in between is noticed at the next look.
        stamp = _stamp([path for path in paths if path])
        return _Read(configuration, _tls(configuration), stamp, expires)
    except ConnectionLost:
        raise
    except Exception as error:
        where = kubeconfig or "the pod's service account (neither --kubeconfig nor KUBECONFIG names a file)"
        raise ConnectionLost(f"cannot read {where}: {error or type(error).__name__}") from error


def _files(kubeconfig: Path) -> list[Path]:
    """The files that exist, of a path that may be several."""
    paths = [Path(each).expanduser() for each in str(kubeconfig).split(os.pathsep) if each]
    found = [path for path in paths if path.exists()]
    if not found:
        raise ConnectionLost(f"kubeconfig {kubeconfig}: no such file")
    for path in found:
        _document(path)
    return found


def _document(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConnectionLost(f"kubeconfig {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConnectionLost(f"kubeconfig {path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        kind = {list: "a list", type(None): "empty"}.get(type(document), "a single value")
        raise ConnectionLost(f"kubeconfig {path} is {kind}; expected an object with clusters, contexts and users")
    for field in ("clusters", "contexts", "users"):
        entries = document.get(field) or []
        if not isinstance(entries, list) or not all(isinstance(each, dict) and "name" in each for each in entries):
            raise ConnectionLost(f"kubeconfig {path}: {field} is not a list of objects with names")
    return document


def _current_context(files: Sequence[Path]) -> str:
    """Of the last file that names one, as kubernetes-asyncio merges them."""
    named = [found for path in files if (found := _document(path).get("current-context"))]
    if not named:
        raise ConnectionLost(f"kubeconfig {files[0]} names no current-context; choose one with --context")
    return str(named[-1])


def _token_files(files: Sequence[Path], context: str | None) -> list[Path]:
    """Files of tokens that the users of a kubeconfig name.

    Raises:
        ConnectionLost: the context is not there.
    """
    documents = [(path, _document(path)) for path in files]
    contexts = [str(each["name"]) for _, document in documents for each in document.get("contexts") or []]
    if context not in contexts:
        raise ConnectionLost(
            f'kubeconfig {files[0]} has no context "{context}"; it has {", ".join(contexts) or "none"}'
        )
    users = [(path, each.get("user")) for path, document in documents for each in document.get("users") or []]
    return [
        path.parent / str(user["tokenFile"]) for path, user in users if isinstance(user, dict) and user.get("tokenFile")
    ]


def _stamp(paths: Sequence[str]) -> _Stamp:
    found = []
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - follows the links of mounted secrets
            found.append((path, status.st_mtime_ns, status.st_ino))
        except OSError:
            found.append((path, 0, 0))
    return tuple(found)


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
