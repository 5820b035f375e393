"""Signs certificates and reads them: of the extender and kube-scheduler, and of a local control plane.

The package knows nothing of who keeps them, and when they are renewed.
"""

from thalweg_certificates.issuing import (
    CLIENT,
    SERVER,
    KeyPair,
    Leaf,
    UnreadableCertificate,
    is_for,
    is_signed_by,
    issue,
    issue_authority,
    issued_at,
    moment,
    read_certificates,
    read_pair,
    to_pem,
)

__all__ = [
    "CLIENT",
    "SERVER",
    "KeyPair",
    "Leaf",
    "UnreadableCertificate",
    "is_for",
    "is_signed_by",
    "issue",
    "issue_authority",
    "issued_at",
    "moment",
    "read_certificates",
    "read_pair",
    "to_pem",
]
