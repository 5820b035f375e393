"""Address and credentials of the API server, from a kubeconfig or the pod's service account, reloaded on change.

Certificates and tokens rotate while the operator runs. Every few seconds ``refresh`` checks their files. If one
changed, all are read again, and new connections use the new credentials. Requests in flight are not disturbed. If a
file cannot be read, for example a key without its new certificate, the old credentials stay in use until the next
check.
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

from thalweg_operator.api.outages import Outages
from thalweg_operator.errors import ConnectionLost

#: Seconds between two checks of the files.
_CHECK_INTERVAL = 5.0
#: Seconds that requests wait for a reload, and that a reload may take. An exec plug-in may be slow or hang; the old
#: credentials stay in use meanwhile.
_WAIT, _LONGEST = 2.0, 60.0
#: A token of an exec plug-in is replaced so long before it expires.
_EARLY = timedelta(minutes=1)
#: Where a pod finds the namespace of its service account.
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class _LoadedCredentials:
    """Credentials as read once.

    Attributes:
        configuration: kubernetes-asyncio's Configuration.
        tls: TLS context for connections to the API server.
        stamp: path, modification time and inode of each file that was read.
        expires: when the token of the exec plug-in expires; None without one.
    """

    configuration: Any
    tls: ssl.SSLContext
    stamp: _Stamp
    expires: datetime | None


class Credentials:
    """Credentials that follow their files. ``read_credentials`` makes them.

    Attributes:
        context: context of the kubeconfig; "" for the service account. It does not follow the current-context of the
            file.
        namespace: of the context, or of the service account's pod; "default" where none is named.
        reloads: number of successful reloads.
    """

    def __init__(self, kubeconfig: Path | None, context: str, namespace: str, read: _LoadedCredentials) -> None:
        self._kubeconfig, self.context, self.namespace, self._read = kubeconfig, context, namespace, read
        self._next_check = self._wait_until = 0.0
        self._reading: asyncio.Task[None] | None = None
        self.reloads = 0

    @property
    def configuration(self) -> Any:
        """kubernetes-asyncio's Configuration."""
        return self._read.configuration

    @property
    def tls(self) -> ssl.SSLContext:
        """TLS context for connections to the API server."""
        return self._read.tls

    async def refresh(self, outages: Outages) -> None:
        """Reloads the credentials if a check is due and finds a change; waits ``_WAIT`` seconds for it at most."""
        now = asyncio.get_running_loop().time()
        if self._reading is None:
            if now < self._next_check:
                return
            self._next_check, self._wait_until = now + _CHECK_INTERVAL, now + _WAIT
            old = self._read
            expires_soon = old.expires is not None and datetime.now(UTC) > old.expires - _EARLY
            if _stamp([path for path, *_ in old.stamp]) == old.stamp and not expires_soon:
                return
            self._reading = asyncio.create_task(self._read_again(old, outages))
        if now < self._wait_until:
            await asyncio.wait({self._reading}, timeout=self._wait_until - now)

    async def _read_again(self, old: _LoadedCredentials, outages: Outages) -> None:
        try:
            async with asyncio.timeout(_LONGEST):
                new = await _read(self._kubeconfig, self.context or None)
        except (ConnectionLost, TimeoutError) as error:
            problem = str(error) or f"reading them takes longer than {_LONGEST:g} s"
            outages.failed("credentials", "not read", f"{problem}; the old credentials stay in use")
            return
        finally:
            self._reading = None
        if new.configuration.host != old.configuration.host:
            problem = f"the kubeconfig names a new server, {new.configuration.host}; restart to use it"
            outages.failed("credentials", "another server", problem)
            return
        self._read = new
        self.reloads += 1
        outages.recovered("credentials")


async def read_credentials(kubeconfig: Path | None, context: str | None = None) -> Credentials:
    """Reads a kubeconfig, or the pod's service account without one.

    Args:
        kubeconfig: one path, or several joined by the path separator, as in KUBECONFIG.
        context: context of the kubeconfig; None: its current context.

    Raises:
        ConnectionLost: the credentials cannot be used; the message says why.
    """
    if kubeconfig is not None and context is None:
        context = _current_context(_files(kubeconfig))
    read = await _read(kubeconfig, context)
    namespace = _pod_namespace() if kubeconfig is None else _context_namespace(_files(kubeconfig), context)
    return Credentials(kubeconfig, context or "", namespace or "default", read)


async def _read(kubeconfig: Path | None, context: str | None) -> _LoadedCredentials:
    # Imported here: the import takes half a second and 50 MB, and other commands do not need it.
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
        # Taken before the files are read: the next check notices a change in between.
        stamp = _stamp([path for path in paths if path])
        return _LoadedCredentials(configuration, _tls(configuration), stamp, expires)
    except ConnectionLost:
        raise
    except Exception as error:
        where = kubeconfig or "the pod's service account (neither --kubeconfig nor KUBECONFIG names a file)"
        raise ConnectionLost(f"cannot read {where}: {error or type(error).__name__}") from error


def _files(kubeconfig: Path) -> list[Path]:
    """The existing files of a kubeconfig path; it may join several."""
    paths = [Path(text).expanduser() for text in str(kubeconfig).split(os.pathsep) if text]
    files = [path for path in paths if path.exists()]
    if not files:
        raise ConnectionLost(f"kubeconfig {kubeconfig}: no such file")
    for path in files:
        _document(path)
    return files


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
        if not isinstance(entries, list) or not all(isinstance(entry, dict) and "name" in entry for entry in entries):
            raise ConnectionLost(f"kubeconfig {path}: {field} is not a list of objects with names")
    return document


def _current_context(files: Sequence[Path]) -> str:
    """The current-context of the first file that names one, as kubectl merges files."""
    named = [context for path in files if (context := _document(path).get("current-context"))]
    if not named:
        raise ConnectionLost(f"kubeconfig {files[0]} names no current-context; choose one with --context")
    return str(named[0])


def _context_namespace(files: Sequence[Path], context: str | None) -> str:
    """The namespace of a context; "" if it names none."""
    entries = [entry for path in files for entry in _document(path).get("contexts") or [] if entry["name"] == context]
    entry = entries[0].get("context") if entries else None
    return str(entry.get("namespace") or "") if isinstance(entry, dict) else ""


def _pod_namespace() -> str:
    """The namespace of the service account's pod; "" if it is not known."""
    try:
        return _POD_NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _token_files(files: Sequence[Path], context: str | None) -> list[Path]:
    """Token files of the users of a kubeconfig.

    Raises:
        ConnectionLost: the kubeconfig does not have the context.
    """
    documents = [(path, _document(path)) for path in files]
    contexts = [str(entry["name"]) for _, document in documents for entry in document.get("contexts") or []]
    if context not in contexts:
        raise ConnectionLost(
            f'kubeconfig {files[0]} has no context "{context}"; it has {", ".join(contexts) or "none"}'
        )
    users = [(path, entry.get("user")) for path, document in documents for entry in document.get("users") or []]
    return [
        path.parent / str(user["tokenFile"]) for path, user in users if isinstance(user, dict) and user.get("tokenFile")
    ]


def _stamp(paths: Sequence[str]) -> _Stamp:
    stamps = []
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - follows the links of mounted secrets
            stamps.append((path, status.st_mtime_ns, status.st_ino))
        except OSError:
            stamps.append((path, 0, 0))
    return tuple(stamps)


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
