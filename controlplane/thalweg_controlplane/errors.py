"""What can go wrong with a local control plane. Each error carries its facts as fields and words them itself."""


class ControlPlaneError(Exception):
    """Everything this package raises on purpose."""


class BuildError(ControlPlaneError):
    """The binaries can neither be found nor built; the message says what to install or shows the compiler's words."""


class ComponentFailed(ControlPlaneError):
    """A component ended by itself, or did not become ready in time (then `exit_code` is None)."""

    def __init__(self, component: str, exit_code: int | None, log_tail: str) -> None:
        self.component = component
        self.exit_code = exit_code
        self.log_tail = log_tail
        super().__init__(component, exit_code, log_tail)

    def __str__(self) -> str:
        what = "did not become ready in time" if self.exit_code is None else f"ended with exit code {self.exit_code}"
        return f"{self.component} {what}; the end of its log:\n{self.log_tail or '(empty)'}"


class ApiError(ControlPlaneError):
    """The API server refused a request, or (`status` 0) did not answer it."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(status, message)

    def __str__(self) -> str:
        return f"{self.status}: {self.message}" if self.status else self.message


class OracleError(ControlPlaneError):
    """The oracle could not judge a case: the message is its own."""
