//! Which clients may use the server: certificates, tokens, and what would be open to everybody.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use outboard_supervisor::auth::{self, Tls, certificate};
use outboard_supervisor::vsock::{Place, are_let_in};
use outboard_wire::Code;

use super::finding::Finding;

const DAY: i64 = 24 * 60 * 60;
/// How long before a certificate's expiry there is a warning.
const SOON: i64 = 30 * DAY;

/// How a server with these settings would treat clients.
pub(super) fn check(config: &auth::Config, address: SocketAddr, guests: &[Place]) -> Vec<Finding> {
    const CHECK: &str = "access";
    let mut findings = Vec::new();
    match auth::check(config, address, guests) {
        Err(error) => {
            let mend = match error.code() {
                Code::OpenToAll => {
                    "make a token with `outboard token create`, or name authorities with --client-ca; --allow-anonymous lets everybody in"
                }
                _ => "check the file and its rights; the server has to be able to read it",
            };
            findings.push(Finding::fail(CHECK, error.code(), error.to_string(), mend));
        }
        Ok(()) if address.ip().is_loopback() && !are_let_in(guests) => {
            findings.push(Finding::ok(CHECK, "programs of this machine are let in"));
        }
        Ok(()) if config.allow_anonymous => {
            let found = "whoever can connect is let in, and can run code on the GPU";
            findings.push(Finding::warn(
                CHECK,
                found,
                "leave --allow-anonymous out, and give clients tokens",
            ));
        }
        Ok(()) if address.ip().is_loopback() => {
            findings.push(Finding::ok(CHECK, "clients show a token, in virtual machines and here"));
        }
        Ok(()) if config.tls == Tls::Off => {
            let found = "connections are not encrypted: tokens and data can be read on the way";
            findings.push(Finding::warn(CHECK, found, "leave --tls at auto"));
        }
        Ok(()) => {
            findings.push(Finding::ok(CHECK, "clients show a token or a certificate, over TLS"))
        }
    }
    let files = config.certificate.iter().chain(&config.client_ca);
    findings.extend(files.map(|file| expiry(file, now())));
    findings
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// How long a certificate is still good.
fn expiry(file: &Path, now: i64) -> Finding {
    const CHECK: &str = "certificate";
    let path = file.display();
    let mend = "have it renewed, and have the server read it: `outboard upgrade`";
    match certificate::expires(file) {
        Err(error) => Finding::fail(
            CHECK,
            error.code(),
            error.to_string(),
            "name a file of certificates in PEM",
        ),
        Ok(end) if end <= now => {
            let found = format!("{path} expired {} days ago", (now - end) / DAY);
            Finding::fail(CHECK, Code::ServerNotTrusted, found, mend)
        }
        Ok(end) if end - now < SOON => {
            Finding::warn(CHECK, format!("{path} expires in {} days", (end - now) / DAY), mend)
        }
        Ok(end) => Finding::ok(CHECK, format!("{path} is good for {} days", (end - now) / DAY)),
    }
}
