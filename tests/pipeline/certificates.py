"""Makes authorities and certificates of their own for tests of TLS, as PEM files."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID


@dataclass(eq=False)
class Authority:
    """Signs certificates; ``file`` is what a client is to trust."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        """Make its key, and its own certificate."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._key = rsa.generate_private_key(65537, 2048)
        self._own = self._signed(self._key.public_key(), self.name, (), is_authority=True)
        self.file = self.folder / f"{self.name}.pem"
        self.file.write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def certificate(self, name: str, *hosts: str, passphrase: str = "") -> tuple[Path, Path]:
        """The files of a certificate for *hosts*, names or addresses, and of its key."""
        key = rsa.generate_private_key(65537, 2048)
        signed = self._signed(key.public_key(), name, hosts)
        files = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if passphrase:
            hidden = serialization.BestAvailableEncryption(passphrase.encode())
        files[1].write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
        )
        files[1].chmod(0o600)  # libpq, Postgres and MySQL refuse one that others can read
        return files

    def _signed(
        self,
        key: rsa.RSAPublicKey,
        name: str,
        hosts: tuple[str, ...],
        *,
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self.name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
        made = made.add_extension(by, critical=False)
        if is_authority:
            made = made.add_extension(identifier, critical=False)
        if hosts:
            every = x509.SubjectAlternativeName([_host(one) for one in hosts])
            made = made.add_extension(every, critical=False)
        return made.sign(self._key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
