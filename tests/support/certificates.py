"""Certificates for tests: a small authority that vouches for servers and clients, and contexts to serve with."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from app.base.addresses import Tls


class Authority:
    """Somebody who vouches; `certificate` is what those who trust it hold, as PEM."""

    def __init__(self, name: str = "Authority") -> None:
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(self._name, self._key, authority=True)

    def issue(self, name: str, *, host: str = "localhost", passphrase: bytes | None = None) -> Tls:
        """Vouch for a name and the host it is at: its certificate and key, with this authority to trust."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key, authority=False, host=host)
        encryption: KeySerializationEncryption = NoEncryption()
        if passphrase is not None:
            encryption = BestAvailableEncryption(passphrase)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
        return Tls(certificate=certificate, key=private, authority=self.certificate)

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool, host: str = "localhost"
    ) -> str:
        alternative = x509.SubjectAlternativeName([x509.DNSName(host)])
        built = (
            x509.CertificateBuilder(self._name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
            .not_valid_after(datetime(2120, 1, 1, tzinfo=UTC))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(alternative, critical=False)
        )
        return built.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def serving(
    folder: Path, own: Tls, *, clients: Authority | None = None, newest: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """Make the context of a server; with `clients` it admits only whom that authority vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = folder / "server.pem"
    pair.write_text(f"{own.certificate}{own.key}")
    context.load_cert_chain(pair)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.certificate)
    if newest is not None:
        context.maximum_version = newest
    return context
