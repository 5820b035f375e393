"""Errors of a local control plane. Each error has its facts as fields and makes its message from them."""


class ControlPlaneError(Exception):
    """Base class of all errors of this package."""


class BuildError(ControlPlaneError):
    """The binaries cannot be found or built; the message says what to install, or shows the compiler's output."""


class ComponentFailed(ControlPlaneError):
    """A component exited, or did not become ready in time (then `exit_code` is None)."""

    def __init__(self, component: str, exit_code: int | None, log_tail: str) -> None:
        self.component = component
        self.exit_code = exit_code
        self.log_tail = log_tail
        super().__init__(component, exit_code, log_tail)

    def __str__(self) -> str:
        what = "did not become ready in time" if self.exit_code is None else f"ended with exit code {self.exit_code}"
        return f"{self.component} {what}; the end of its log:\n{self.log_tail or '(empty)'}"


class ApiError(ControlPlaneError):
    """The API server refused a request, or did not answer (`status` 0)."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(status, message)

    def __str__(self) -> str:
        return f"{self.status}: {self.message}" if self.status else self.message


class OracleError(ControlPlaneError):
    """The oracle could not judge a case; the message comes from the oracle."""
