"""Real clients behind TLS, certificates of their own, and logins; and what each says when it is refused.

    secure.py            every client
    secure.py CLIENT...  some of them: java confluent kafka-python franz-go kafkajs, and least: a group and a transaction
                         with exactly the rules they need

The certificates and tokens are made by openssl at each run; users are made by kafka-configs.
"""

import base64
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

from access import Tools
from harness import CACHE, HERE, Broker, Tally, free_port, java

WITHIN_S = 600
USER, PASSWORD = "alice", "correct horse battery"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
# What a refused client's error must hold, by case; a tuple is any of its words.
BAD_LOGIN = "a wrong password"
WORDS = {
    "java": {
        "wrong password PLAIN": "Invalid username or password",
        "wrong password SCRAM-SHA-256": "invalid credentials with SASL mechanism SCRAM-SHA-256",
        "wrong password SCRAM-SHA-512": "invalid credentials with SASL mechanism SCRAM-SHA-512",
        "forged token": "SaslAuthenticationException",
        "unknown authority": "SslAuthenticationException",
        "expired certificate": "SslAuthenticationException",
        "wrong host name": "SslAuthenticationException",
        "no client certificate": "SslAuthenticationException",
        "a stranger's client certificate": "SslAuthenticationException",
    },
    "confluent": {
        "wrong password PLAIN": "Invalid username or password",
        "wrong password SCRAM-SHA-256": "invalid credentials with SASL mechanism SCRAM-SHA-256",
        "wrong password SCRAM-SHA-512": "invalid credentials with SASL mechanism SCRAM-SHA-512",
        "forged token": "_AUTHENTICATION",
        "unknown authority": "certificate verify failed",
        "expired certificate": "certificate verify failed",
        "wrong host name": "certificate verify failed",
        "no client certificate": "SSL",
        "a stranger's client certificate": "SSL",
    },
    "kafka-python": {
        "wrong password PLAIN": "Invalid username or password",
        "wrong password SCRAM-SHA-256": "invalid credentials with SASL mechanism SCRAM-SHA-256",
        "wrong password SCRAM-SHA-512": "invalid credentials with SASL mechanism SCRAM-SHA-512",
        "forged token": "Authentication",
        "unknown authority": "certificate verify failed",
        "expired certificate": "certificate has expired",
        "wrong host name": "certificate is not valid for",
        "no client certificate": ("certificate required", "KafkaTimeoutError"),
        "a stranger's client certificate": ("unknown ca", "decrypt error", "KafkaTimeoutError"),
    },
    "franz-go": {
        "wrong password PLAIN": "SASL_AUTHENTICATION_FAILED",
        "wrong password SCRAM-SHA-256": "SASL_AUTHENTICATION_FAILED",
        "wrong password SCRAM-SHA-512": "SASL_AUTHENTICATION_FAILED",
        "forged token": ("SASL_AUTHENTICATION_FAILED", "invalid_token"),
        "unknown authority": "unknown authority",
        "expired certificate": "expired",
        "wrong host name": "certificate is valid for",
        "no client certificate": "certificate required",
        # It shows no certificate of an authority that the broker does not name.
        "a stranger's client certificate": "certificate required",
    },
    "kafkajs": {
        "wrong password PLAIN": "Invalid username or password",
        "wrong password SCRAM-SHA-256": "invalid credentials with SASL mechanism SCRAM-SHA-256",
        "wrong password SCRAM-SHA-512": "invalid credentials with SASL mechanism SCRAM-SHA-512",
        # It does not look at the answer (RFC 7628, 3.2.2) and goes on without a login.
        "forged token": "Closed connection",
        "unknown authority": ("unable to verify", "self-signed certificate", "unable to get"),
        "expired certificate": "certificate has expired",
        "wrong host name": "does not match certificate's altnames",
        "no client certificate": ("certificate required", "Closed connection", "Connection"),
        "a stranger's client certificate": ("unknown ca", "decrypt error", "Closed connection", "Connection"),
    },
}


class Pki:
    """Keys, certificates and tokens, below one directory."""

    def __init__(self, place):
        self.place = place
        self.authority("ca", "The authority")
        # Not the same name: a client would only find a bad signature.
        self.authority("stranger", "Somebody else")
        names = "DNS:localhost,IP:127.0.0.1"
        self.issue("server", "ca", "localhost", names)
        self.issue("late", "ca", "localhost", names, start="20200101000000Z", end="20210101000000Z")
        self.issue("elsewhere", "ca", "elsewhere.example", "DNS:elsewhere.example")
        self.issue("client", "ca", "alice", "DNS:alice")
        self.issue("impostor", "stranger", "alice", "DNS:alice")

    def path(self, name):
        return os.path.join(self.place, name)

    def openssl(self, *words, data=None):
        done = subprocess.run(["openssl", *words], input=data, capture_output=True, cwd=self.place, check=False)
        if done.returncode:
            raise RuntimeError(f"openssl {words}: {done.stderr.decode()}")
        return done.stdout

    def authority(self, name, common_name):
        self.openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem",
                     "-days", "30", "-subj", f"/CN={common_name}")
        for file, text in [(f"{name}.db", ""), (f"{name}.serial", "1000\n")]:
            with open(self.path(file), "w", encoding="utf-8") as out:
                out.write(text)

    def issue(self, name, authority, common_name, names, start=None, end=None):
        """name.key, name.pem, and both in name-identity.pem."""
        config = (f"[ca]\ndefault_ca=d\n[d]\ndatabase={authority}.db\nserial={authority}.serial\nnew_certs_dir=.\n"
                  f"default_md=sha256\npolicy=p\nunique_subject=no\nx509_extensions=e\ndefault_days=30\n"
                  f"[p]\ncommonName=supplied\n[e]\nsubjectAltName={names}\n")
        with open(self.path(f"{name}.cnf"), "w", encoding="utf-8") as out:
            out.write(config)
        self.openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                     "-subj", f"/CN={common_name}")
        dates = ["-startdate", start, "-enddate", end] if start else []
        self.openssl("ca", "-batch", "-notext", "-config", f"{name}.cnf", "-in", f"{name}.csr", "-out", f"{name}.pem",
                     "-cert", f"{authority}.pem", "-keyfile", f"{authority}.key", *dates)
        with open(self.path(f"{name}-identity.pem"), "w", encoding="utf-8") as out:
            for part in (f"{name}.key", f"{name}.pem", f"{authority}.pem"):
                with open(self.path(part), encoding="utf-8") as file:
                    out.write(file.read())

    def jwks(self):
        """The public key of the authority, as those who issue tokens publish theirs."""
        modulus = self.openssl("rsa", "-in", "ca.key", "-noout", "-modulus").decode().strip().split("=")[1]
        key = {"kty": "RSA", "kid": "ca", "use": "sig", "alg": "RS256",
               "n": encoded(bytes.fromhex(modulus)), "e": encoded(b"\x01\x00\x01")}
        with open(self.path("jwks.json"), "w", encoding="utf-8") as out:
            json.dump({"keys": [key]}, out)
        return self.path("jwks.json")

    def token(self, name, signer):
        now = int(time.time())
        header = {"alg": "RS256", "kid": "ca", "typ": "JWT"}
        claims = {"sub": USER, "iss": "https://issuer", "aud": "kafka", "iat": now, "exp": now + 3600}
        signed = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
        signature = self.openssl("dgst", "-sha256", "-sign", f"{signer}.key", data=signed.encode())
        with open(self.path(name), "w", encoding="utf-8") as out:
            out.write(f"{signed}.{encoded(signature)}")
        return self.path(name)


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Secured(Broker):
    """A broker with a listener for every way in, beside a plain one for the one who sets it up."""

    def __init__(self, pki):
        self.pki = pki
        self.ports = {name: free_port() for name in ["SECURE", "TLS", "MTLS", "LATE", "ELSEWHERE"]}
        super().__init__()

    def _seawall(self):
        protocols = {name: "SASL_SSL" if name == "SECURE" else "SSL" for name in self.ports}
        identities = {"LATE": "late", "ELSEWHERE": "elsewhere"}
        listeners = [f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()]
        advertised = [f"{name}://localhost:{port}" for name, port in self.ports.items()]
        sets = [
            f"listeners=PLAINTEXT://{self.address}," + ",".join(listeners),
            f"advertised.listeners=PLAINTEXT://{self.address}," + ",".join(advertised),
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT," + ",".join(f"{n}:{p}" for n, p in protocols.items()),
            f"ssl.keystore.location={self.pki.path('server-identity.pem')}",
            f"ssl.truststore.location={self.pki.path('ca.pem')}",
            "listener.name.mtls.ssl.client.auth=required",
            "listener.name.mtls.ssl.principal.mapping.rules=RULE:^CN=(.*?)$/$1/",
            "sasl.enabled.mechanisms=" + ",".join(MECHANISMS),
            f"sasl.oauthbearer.jwks.endpoint.url=file://{self.pki.jwks()}",
            "sasl.oauthbearer.expected.issuer=https://issuer",
            "sasl.oauthbearer.expected.audience=kafka",
        ] + [f"listener.name.{name.lower()}.ssl.keystore.location={self.pki.path(own + '-identity.pem')}"
             for name, own in identities.items()]
        return super()._seawall() + [word for setting in sets for word in ("--set", setting)]


def cases(broker, pki):
    """(name, whether it must work, fields) of each case."""
    def case(listener, **fields):
        protocol = "SASL_SSL" if listener == "SECURE" else "SSL"
        at = f"localhost:{broker.ports[listener]}"
        return {"bootstrap": at, "protocol": protocol, "ca": pki.path("ca.pem"), **fields}

    def login(mechanism, password=PASSWORD, token="good.token"):
        if mechanism == "OAUTHBEARER":
            return {"mechanism": mechanism, "token": pki.path(token)}
        return {"mechanism": mechanism, "user": USER, "password": password}

    def identity(name):
        return {"identity": pki.path(f"{name}-identity.pem"), "certificate": pki.path(f"{name}.pem"), "key": pki.path(f"{name}.key")}

    yield "TLS", True, case("TLS")
    yield "a client certificate", True, case("MTLS", **identity("client"))
    for mechanism in MECHANISMS:
        yield f"login by {mechanism}", True, case("SECURE", **login(mechanism))
    for mechanism in MECHANISMS[:3]:
        yield f"wrong password {mechanism}", False, case("SECURE", **login(mechanism, "wrong"))
    yield "forged token", False, case("SECURE", **login("OAUTHBEARER", token="forged.token"))
    yield "unknown authority", False, case("TLS", ca=pki.path("stranger.pem"))
    yield "expired certificate", False, case("LATE")
    yield "wrong host name", False, case("ELSEWHERE")
    yield "no client certificate", False, case("MTLS")
    yield "a stranger's client certificate", False, case("MTLS", **identity("impostor"))


class Ruled(Secured):
    """The same where nobody but the one who sets it up may do anything without a rule."""

    def _seawall(self):
        sets = ["authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS"]
        return super()._seawall() + [word for setting in sets for word in ("--set", setting)]


# What a member of a group that writes in a transaction needs: the words of kafka-acls, and the code of a refusal without it.
LEAST = [
    (("--operation", "Read", "--topic", "orders"), "TOPIC_AUTHORIZATION_FAILED"),
    (("--operation", "Read", "--group", "books"), "GROUP_AUTHORIZATION_FAILED"),
    (("--operation", "Write", "--topic", "ledger"), "TOPIC_AUTHORIZATION_FAILED"),
    (("--operation", "Write", "--transactional-id", "till"), "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
]


def least(pki, scratch, tally):
    """A group and a transaction with exactly the rules they need, and with each of them left out."""
    broker = Ruled(pki)
    try:
        make_user(broker, tally)
        tools = Tools(broker)
        for topic in ("orders", "ledger"):
            tools.topic(topic)
        allow = lambda words: tools.acls("--add", "--allow-principal", f"User:{USER}", *words)
        revoke = lambda words: tools.acls("--remove", "--force", "--allow-principal", f"User:{USER}", *words)
        for words, _ in LEAST:
            allow(words)
        tally.add("exactly the rules that are needed", carried(broker, pki, scratch))
        for words, refusal in LEAST:
            revoke(words)
            text = carried(broker, pki, scratch)
            missing = None if text and refusal in text else f"not {refusal!r}: {text}"
            tally.add(f"without {' '.join(words[1:])}", missing)
            allow(words)
        tally.add("the rules are there again", carried(broker, pki, scratch))
        broker.stop()
    except BaseException:
        broker.discard()
        raise


def carried(broker, pki, scratch):
    """None, or why one record did not get from one topic to the other."""
    case = {"bootstrap": f"localhost:{broker.ports['SECURE']}", "protocol": "SASL_SSL", "ca": pki.path("ca.pem"),
            "mechanism": "SCRAM-SHA-512", "user": USER, "password": PASSWORD, "plain": broker.address, "source": "orders",
            "sink": "ledger", "group": "books", "id": "till"}
    path = os.path.join(scratch, "least")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\t".join(f"{key}={value}" for key, value in case.items()))
    command = [os.path.join(CACHE, "venv", "bin", "python"), os.path.join(HERE, "python", "least.py"), path]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN_S, check=False)
    text = done.stdout.decode(errors="replace").strip()
    return None if text == "ok" else text or done.stderr.decode(errors="replace")[-600:]


def commands():
    python = [os.path.join(CACHE, "venv", "bin", "python"), os.path.join(HERE, "python", "secure.py")]
    return {
        "java": java("client.Secure"),
        "confluent": [*python, "confluent"],
        "kafka-python": [*python, "kafka-python"],
        "franz-go": [os.path.join(CACHE, "go", "client"), "franz-go", "secure", "--file"],
        "kafkajs": ["node", os.path.join(HERE, "node", "secure.js")],
    }


def run_client(client, command, todo, scratch, tally):
    path = os.path.join(scratch, f"cases-{client}")
    with open(path, "w", encoding="utf-8") as file:
        for number, (_, _, fields) in enumerate(todo):
            fields = {**fields, "topic": f"secure-{client}-{number}"}
            file.write("\t".join(f"{key}={value}" for key, value in fields.items()) + "\n")
    done = subprocess.run([*command, path], stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN_S, check=False)
    silent = f"no word from the client; exit {done.returncode}: {done.stderr.decode(errors='replace')[-600:]}"
    said = [("silent", silent)] * len(todo)
    for line in done.stdout.decode(errors="replace").splitlines():
        words = line.split("\t")
        if words[0] in ("ok", "fail"):
            said[int(words[1])] = (words[0], words[2] if len(words) > 2 else "")
    for (name, works, _), (outcome, text) in zip(todo, said):
        tally.add(f"{client}: {name}", verdict(client, name, works, outcome, text))


def verdict(client, name, works, outcome, text):
    """None, or what is wrong with how a case ended."""
    if works:
        return None if outcome == "ok" else text
    if outcome != "fail":
        return f"it was not refused: {outcome} {text}"
    words = WORDS[client][name]
    words = words if isinstance(words, tuple) else (words,)
    return None if any(word in text for word in words) else f"none of {words} in: {text}"


def make_user(broker, tally):
    """The user, by kafka-configs, which says nothing of its password afterwards."""
    added = ",".join(f"{mechanism}=[iterations=4096,password={PASSWORD}]" for mechanism in MECHANISMS[1:3])
    configs = [*java("client.Secure"), "configs", "--bootstrap-server", broker.address, "--entity-type", "users",
               "--entity-name", USER, "--alter", "--add-config"]
    done = subprocess.run([*configs, added], stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN_S, check=False)
    text = (done.stdout + done.stderr).decode(errors="replace")
    good = done.returncode == 0 and "Completed updating config for user" in text
    tally.add("kafka-configs adds a user", None if good else text)


def main():
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="seawall-secure-") as scratch:
        pki = Pki(scratch)
        pki.token("good.token", "ca")
        pki.token("forged.token", "stranger")
        broker = Secured(pki)
        try:
            make_user(broker, tally)
            todo = list(cases(broker, pki))
            chosen = {client: command for client, command in commands().items() if client in (sys.argv[1:] or WORDS)}
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                futures = [pool.submit(run_client, *each, todo, scratch, tally) for each in chosen.items()]
                for future in futures:
                    future.result()
            log = broker.log()
            tally.add("no secret in the log", "it stands there" if PASSWORD in log or "forged.token" in log else None)
            broker.stop()
        except BaseException:
            broker.discard()
            raise
        if not sys.argv[1:] or "least" in sys.argv[1:]:
            least(pki, scratch, tally)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
