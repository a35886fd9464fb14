"""A cluster's own certificate authority, on openssl's command line."""

import base64
import json
import pathlib
import subprocess


def openssl(*words, cwd: pathlib.Path) -> None:
    subprocess.run(["openssl", *words], cwd=cwd, check=True, capture_output=True)


class Authority:
    """Keys and certificates in one folder: NAME.key and NAME.crt, and ca.crt. Valid for ten days."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "10",
                "-subj", "/CN=lockstep-tests", "-keyout", "ca.key", "-out", "ca.crt", cwd=self.folder)
        # Tokens of service accounts are signed with RSA: what every client library knows.
        openssl("genrsa", "-out", "service-accounts.key", "2048", cwd=self.folder)
        openssl("rsa", "-in", "service-accounts.key", "-pubout", "-out", "service-accounts.pub", cwd=self.folder)

    def issue(self, name: str, subject: str, names: tuple = ()) -> None:
        """NAME.key and NAME.crt for `subject` (`/O=…/CN=…`); with `names` (`DNS:…`, `IP:…`) a server's, else a client's."""
        usage = "serverAuth" if names else "clientAuth"
        extensions = f"keyUsage=digitalSignature\nextendedKeyUsage={usage}\n"
        if names:
            extensions += f"subjectAltName={','.join(names)}\n"
        (self.folder / f"{name}.ext").write_text(extensions)
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", subject,
                "-keyout", f"{name}.key", "-out", f"{name}.csr", cwd=self.folder)
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "10",
                "-extfile", f"{name}.ext", "-out", f"{name}.crt", cwd=self.folder)

    def kubeconfig(self, server: str, user: dict) -> str:
        """A kubeconfig (JSON, which is YAML) for `server` with the authority's certificate in it."""
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority-data": self.data("ca.crt")}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }, indent=1)

    def client(self, name: str) -> dict:
        """A kubeconfig's user who has the certificate `name`."""
        return {"client-certificate-data": self.data(f"{name}.crt"), "client-key-data": self.data(f"{name}.key")}

    def data(self, file: str) -> str:
        return base64.b64encode((self.folder / file).read_bytes()).decode()
